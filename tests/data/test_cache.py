"""The cache of decoded data: fast when it can be used, never in the way."""

import errno
import logging
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from fedro.data import make_federation
from fedro.data.cache import MANIFEST, cache_folder, cached
from sample_data import femnist_table, write_parquet


class Builder:
    """Counts how often the data is decoded."""

    def __init__(self, value: int = 1) -> None:
        self.value, self.times = value, 0

    def __call__(self) -> dict[str, np.ndarray]:
        self.times += 1
        return {"x": np.full((100, 3), self.value, dtype=np.uint8), "names": np.array(["a", "ö"])}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    path.write_text("content")
    return path


def entries() -> list[Path]:
    return sorted(cache_folder().iterdir()) if cache_folder().exists() else []


def test_second_time_comes_from_the_cache(file: Path) -> None:
    build = Builder()
    one, other = cached("some", [file], build), cached("some", [file], build)
    assert build.times == 1
    assert other["names"].tolist() == ["a", "ö"]
    assert np.array_equal(one["x"], other["x"])
    assert isinstance(other["x"].base, np.memmap)
    assert not other["x"].flags.writeable
    assert [path.name.startswith("some-") for path in entries()] == [True]


def test_changed_files_are_decoded_again(file: Path, tmp_path: Path) -> None:
    build = Builder()
    cached("some", [file], build)
    os.utime(file, ns=(0, 12345))
    cached("some", [file], build)
    file.write_text("longer content")
    os.utime(file, ns=(0, 12345))
    cached("some", [file], build)
    cached("other", [file], build)
    file.rename(tmp_path / "elsewhere")
    cached("some", [tmp_path / "elsewhere"], build)
    assert build.times == 5
    cached("some", [tmp_path / "elsewhere"], build)
    assert build.times == 5


@pytest.mark.parametrize("name", ["x.npy", "names.npy", MANIFEST])
@pytest.mark.parametrize("damage", ["gone", "empty", "cut", "flipped", "zeros"])
def test_damage_is_repaired(file: Path, name: str, damage: str) -> None:
    build = Builder()
    cached("some", [file], build)
    path = entries()[0] / name
    data = path.read_bytes()
    middle = len(data) // 2
    path.unlink()
    if damage != "gone":
        flipped = data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]
        kinds = {"empty": b"", "cut": data[:middle], "flipped": flipped, "zeros": bytes(len(data))}
        path.write_bytes(kinds[damage])
    again = cached("some", [file], build)
    assert build.times == 2
    assert again["x"].tolist() == Builder()()["x"].tolist()
    cached("some", [file], build)
    assert build.times == 2
    assert len(entries()) == 1


@pytest.mark.parametrize("text", ["[]", "3", "null", '"x"', '{"../x.npy": 1}', '{"x.npy": "1"}'])
def test_a_manifest_of_another_kind(file: Path, text: str) -> None:
    build = Builder()
    cached("some", [file], build)
    (entries()[0] / MANIFEST).write_text(text)
    assert set(cached("some", [file], build)) == {"x", "names"}
    assert build.times == 2


def test_no_folder_to_write_to(
    file: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("FEDRO_CACHE", str(file / "below"))  # below a file there can be no folder
    build = Builder()
    for _ in range(3):
        assert cached("some", [file], build)["x"].shape == (100, 3)
    assert build.times == 3
    said = [record.message for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(said) == 1
    assert "no cache of decoded data in " + str(file / "below") in said[0]
    assert "set FEDRO_CACHE to a folder" in said[0]


@pytest.mark.skipif(os.getuid() == 0, reason="root may write everywhere")
def test_a_folder_that_may_not_be_written(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o500)
    monkeypatch.setenv("FEDRO_CACHE", str(closed))
    assert cached("some", [file], Builder())["x"].shape == (100, 3)


def test_a_full_disk(
    file: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", full)
        assert cached("some", [file], Builder())["x"].shape == (100, 3)
    assert "No space left on device" in caplog.text
    assert entries() == []  # nothing half-written stays
    build = Builder()
    cached("some", [file], build)
    cached("some", [file], build)
    assert build.times == 1


def test_no_home(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless(_: Path) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("FEDRO_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "expanduser", homeless)
    assert cached("some", [file], Builder())["x"].shape == (100, 3)


def test_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDRO_CACHE", "")
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert cache_folder() == Path("/somewhere/fedro")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == Path.home() / ".cache" / "fedro"
    monkeypatch.setenv("FEDRO_CACHE", "/elsewhere")
    assert cache_folder() == Path("/elsewhere")


def test_two_at_once(file: Path) -> None:
    """All miss, all decode, one writes first; everyone gets the data and one copy is kept."""
    gate, found = threading.Barrier(4), []

    def build() -> dict[str, np.ndarray]:
        gate.wait(timeout=30)
        return Builder()()

    threads = [
        threading.Thread(target=lambda: found.append(cached("some", [file], build)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert [int(arrays["x"].sum()) for arrays in found] == [300] * 4
    assert len(entries()) == 1


def test_errors_of_the_data_are_not_hidden(tmp_path: Path) -> None:
    def broken() -> dict[str, np.ndarray]:
        raise OSError("the data itself")

    with pytest.raises(OSError, match="the data itself"):
        cached("some", [], broken)
    assert entries() == []


@pytest.mark.slow
def test_two_processes_at_once(tmp_path: Path) -> None:
    file = write_parquet(femnist_table({"a": 300, "b": 300}), tmp_path / "femnist.parquet")
    code = (
        "from fedro.data import make_federation; "
        f"print(sum(int(make_federation({f'femnist(path={str(file)!r})'!r}).train(i).x.sum()) "
        "for i in range(2)))"
    )
    running = [
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    printed = {process.communicate(timeout=120)[0].strip() for process in running}
    federation = make_federation(f"femnist(path='{file}')")
    assert printed == {str(sum(int(federation.train(i).x.sum()) for i in range(2)))}
    assert len(entries()) == 1
