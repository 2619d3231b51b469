"""Files are replaced completely or not at all; the run folder's tests add kills and power cuts."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from fedro.common.atomic_files import (
    CannotWriteError,
    NewRootFolderError,
    atomic_path,
    check_html_name,
    make_folder_durably,
    temporary_name,
    write_atomically,
)


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The paths that were brought to the disk."""
    paths: list[Path] = []
    monkeypatch.setattr(
        os, "fsync", lambda file: paths.append(Path(os.readlink(f"/proc/self/fd/{file}")))
    )
    return paths


@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize("data", [b"\x00new", "n̂eu", b""])
def test_writes_and_makes_the_folder(tmp_path: Path, data: Any, durable: bool) -> None:
    path = tmp_path / "a" / "b" / "file.txt"
    for _ in range(2):
        assert write_atomically(path, data, durable=durable) == path
        assert path.read_bytes() == (data.encode() if isinstance(data, str) else data)
    assert [file.name for file in path.parent.iterdir()] == ["file.txt"]


def test_text_that_utf_8_cannot_hold(tmp_path: Path) -> None:
    assert write_atomically(tmp_path / "x", "a\ud800b").read_bytes() == b"a?b"


@pytest.mark.parametrize("trouble", [OSError(errno.ENOSPC, "No space left"), KeyboardInterrupt()])
@pytest.mark.parametrize("step", ["write", "replace"])
def test_trouble_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trouble: BaseException, step: str
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def fail(*_: object) -> None:
        raise trouble

    with monkeypatch.context() as patch:
        patch.setattr(os, step, fail)
        with pytest.raises((CannotWriteError, KeyboardInterrupt)) as raised:
            write_atomically(path, b"new")
    if isinstance(raised.value, OSError):
        assert str(raised.value) == f"cannot write {path}: No space left"
        assert raised.value.errno == errno.ENOSPC
    assert [file.name for file in tmp_path.iterdir()] == ["file"]
    assert path.read_bytes() == b"old"


def test_a_missing_folder_is_not_made_unless_asked(tmp_path: Path) -> None:
    path = tmp_path / "gone" / "file"
    with pytest.raises(CannotWriteError, match="No such file or directory") as raised:
        write_atomically(path, b"new", make_folder=False)
    assert raised.value.errno == errno.ENOENT
    assert not path.parent.exists()


def test_durable_syncs_the_file_and_then_its_name(tmp_path: Path, synced: list[Path]) -> None:
    write_atomically(tmp_path / "file", b"x")
    assert synced == []
    write_atomically(tmp_path / "file", b"x", durable=True, fixed_name=True)
    assert synced == [tmp_path / temporary_name("file"), tmp_path]


def test_a_folder_can_be_put_in_place(tmp_path: Path, synced: list[Path]) -> None:
    with atomic_path(tmp_path / "folder", durable=True) as temporary:
        temporary.mkdir()
        (temporary / "a").write_text("1")
        assert not (tmp_path / "folder").exists()
    assert (tmp_path / "folder" / "a").read_text() == "1"
    assert synced == [temporary / "a", temporary, tmp_path]

    def again() -> None:
        with atomic_path(tmp_path / "folder") as temporary:
            temporary.mkdir()
            (temporary / "b").write_text("2")

    with pytest.raises(CannotWriteError, match="not empty"):
        again()
    assert [file.name for file in tmp_path.rglob("*")] == ["folder", "a"]


def test_temporary_names_do_not_meet(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with atomic_path(path) as one, atomic_path(path) as other:
        assert one != other
        one.write_text("one")
        other.write_text("other")
    assert path.read_text() == "one"  # the outer block ends last


def test_an_error_in_the_block_is_passed_on(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), atomic_path(tmp_path / "file") as temporary:
        temporary.write_text(str(1 / 0))

    def fail() -> None:
        with atomic_path(tmp_path / "file") as temporary:
            temporary.write_text("half")
            raise OSError("odd")

    with pytest.raises(CannotWriteError, match=r"cannot write .*file: odd"):
        fail()
    assert not list(tmp_path.iterdir())


def test_folders_are_made_durably(tmp_path: Path, synced: list[Path]) -> None:
    make_folder_durably(tmp_path / "a" / "b")
    assert synced == [tmp_path, tmp_path / "a"]
    make_folder_durably(tmp_path / "a" / "b")
    assert len(synced) == 2


def test_files_of_the_user_with_a_temporary_name_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "page.html.tmp").mkdir()
    (tmp_path / "page.html.tmp" / "mine").write_text("mine")
    (tmp_path / "plan.html.tmp").write_text("mine too")
    write_atomically(tmp_path / "page.html", "new")
    write_atomically(tmp_path / "plan.html", "new")
    assert (tmp_path / "page.html.tmp" / "mine").read_text() == "mine"
    assert (tmp_path / "plan.html.tmp").read_text() == "mine too"


def test_a_name_of_the_greatest_length_can_be_written(tmp_path: Path) -> None:
    path = tmp_path / ("n" * 255)
    assert write_atomically(path, b"x").read_bytes() == b"x"
    with pytest.raises(CannotWriteError, match="too long"):
        write_atomically(tmp_path / ("n" * 256), b"x")


def test_no_folder_is_made_directly_below_the_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = r"would create the folder /no-such-folder at the root of the file system; check"
    for path in ("/no-such-folder/x.html", "/no-such-folder/a/b.html", "/tmp/../no-such-folder/x"):
        with pytest.raises(NewRootFolderError, match=f"cannot write {path}: this {wanted}"):
            write_atomically(Path(path), "")
    for path in ("/no-such-folder", "/no-such-folder/a"):
        with pytest.raises(NewRootFolderError, match=wanted):
            make_folder_durably(Path(path))
    monkeypatch.chdir("/")
    with pytest.raises(NewRootFolderError, match=wanted):
        write_atomically(Path("no-such-folder/x.html"), "")
    assert not Path("/no-such-folder").exists()
    monkeypatch.chdir(tmp_path)
    write_atomically(Path("a/b/x.html"), "")
    make_folder_durably(Path("c/d"))
    assert Path("a/b/x.html").exists()
    assert Path("c/d").is_dir()
    make_folder_durably(Path("/"))


def test_the_name_of_a_page_ends_in_html() -> None:
    for name in ("x.html", "x.HTM", "a.pdf/x.html"):
        check_html_name(Path(name))
    with pytest.raises(ValueError, match=r"a page to x.pdf: the name must end in .html; try y$"):
        check_html_name(Path("x.pdf"), "; try y")
    with pytest.raises(ValueError, match="the name must end in"):
        check_html_name(Path("html"))
