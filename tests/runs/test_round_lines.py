"""What is written for a checkpoint does not grow with the run, and its lines are not lost."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from fedro.runs import RunFolder, RunFolderError, read, roll_back
from run_folders import create, resume

TEXT = "x" * 500


def bytes_written(action: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> int:
    """The number of bytes that an action writes to files."""
    total, write = 0, os.write

    def counted(file: int, data: bytes) -> int:
        nonlocal total
        total += len(data)
        return write(file, data)

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", counted)
        action()
    return total


def train(folder: RunFolder, rounds: range, every: int = 1) -> None:
    for round in rounds:
        folder.append({"round": round, "text": TEXT})
        if (round + 1) % every == 0:
            folder.checkpoint(round + 1, {"model": torch.full((3,), float(round))}, {})


def lines(path: Path) -> list[int]:
    return [line["round"] for line in read(path).rounds]


def test_a_checkpoint_writes_the_same_in_every_round(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with create(path) as folder:
        written = {}
        for start in (100, 150, 200):
            train(folder, range(folder._saved or 0, start))
            written[start] = bytes_written(
                lambda: train(folder, range(start, start + 10)),  # noqa: B023
                monkeypatch,
            )
    with resume(path) as folder:
        train(folder, range(210, 300))
        written[300] = bytes_written(lambda: train(folder, range(300, 310)), monkeypatch)
    assert len(set(written.values())) == 1, written
    line = len((path / "rounds.jsonl").read_bytes()) // 310
    assert written[300] < 10 * (2 * line + 700)


def test_the_copy_ends_at_the_newest_checkpoint(path: Path) -> None:
    with create(path) as folder:
        train(folder, range(7), every=3)
    text = (path / "rounds.jsonl").read_bytes()
    assert (path / "checkpoints" / "rounds.jsonl").read_bytes() == b"".join(
        text.splitlines(keepends=True)[:6]
    )


@pytest.mark.parametrize("victim", ["rounds.jsonl", "checkpoints/rounds.jsonl"])
@pytest.mark.parametrize("damage", ["lost", "empty", "short", "edited", "zeros"])
def test_either_file_is_restored_from_the_other(path: Path, victim: str, damage: str) -> None:
    with create(path) as folder:
        train(folder, range(6), every=2)
    whole, file = (path / "rounds.jsonl").read_bytes(), path / victim
    damaged = {
        "empty": b"",
        "short": whole[:-700],
        "edited": whole.replace(b'"round": 3', b'"round": 7'),
        "zeros": bytes(len(whole)),
    }
    file.unlink() if damage == "lost" else file.write_bytes(damaged[damage])
    with resume(path) as folder:
        assert folder.latest().round == 6
        train(folder, range(6, 8), every=2)
    both = [(path / name).read_bytes() for name in ("rounds.jsonl", "checkpoints/rounds.jsonl")]
    assert both[0] == both[1]
    assert both[0].startswith(whole)


def test_lines_that_are_lost_twice_are_an_error(path: Path) -> None:
    with create(path) as folder:
        train(folder, range(6), every=2)
    files = (path / "rounds.jsonl", path / "checkpoints" / "rounds.jsonl")
    whole = files[0].read_bytes()
    for file in files:
        file.write_bytes(whole.replace(b'"round": 1', b'"round": 7'))
    with pytest.raises(RunFolderError) as refused:
        resume(path)
    assert "round-000006.safetensors: neither rounds.jsonl nor its copy" in str(refused.value)
    assert f"the {len(whole)} bytes that were there when it was saved" in str(refused.value)
    with pytest.raises(RunFolderError, match=r"round-000004.* is damaged: neither rounds\.jsonl"):
        roll_back(path, 4)
    files[0].write_bytes(whole)
    with resume(path) as folder:
        assert folder.latest().round == 6


def test_lines_that_end_too_early_lead_to_the_older_checkpoint(path: Path) -> None:
    """As in a copy of the folder that was made while the run was going on."""
    with create(path) as folder:
        train(folder, range(6), every=2)
    files = (path / "rounds.jsonl", path / "checkpoints" / "rounds.jsonl")
    for file in files:
        text = file.read_bytes().splitlines(keepends=True)
        file.write_bytes(b"".join(text[:5]))
    with resume(path) as folder:
        assert folder.latest().round == 4
        assert lines(path) == [0, 1, 2, 3]
        train(folder, range(4, 6), every=2)
    assert (path / "checkpoints" / "round-000006.safetensors.damaged").exists()
    assert lines(path) == list(range(6))


def test_a_checkpoint_that_could_not_be_written_leaves_no_lines_behind(path: Path) -> None:
    with create(path) as folder:
        train(folder, range(2))
        for round in (2, 3):
            folder.append({"round": round})
        with pytest.raises(ValueError, match="dense"):
            folder.checkpoint(4, {"x": torch.ones(2, device="meta")}, {})
        folder.checkpoint(3, {}, {})
        folder.append({"round": 4})
    with resume(path) as folder:
        assert lines(path) == [0, 1, 2]
        train(folder, range(3, 5))
    assert lines(path) == list(range(5))


def test_what_was_rolled_back_can_be_put_back(path: Path) -> None:
    with create(path) as folder:
        train(folder, range(4), every=2)
        folder.append({"round": 4})
    whole = (path / "rounds.jsonl").read_bytes()
    renamed = roll_back(path, 2)
    assert [file.name for file in renamed] == ["round-000004.safetensors.undone"]
    assert (path / "rounds.jsonl.undone").read_bytes() == whole
    with resume(path) as folder:
        assert lines(path) == [0, 1]
        folder.append({"round": 2, "other": True})
    shutil.copy(path / "rounds.jsonl.undone", path / "rounds.jsonl")
    renamed[0].rename(renamed[0].with_suffix(""))
    with resume(path) as folder:
        assert folder.latest().round == 4
        assert lines(path) == [0, 1, 2, 3]


def test_a_rollback_to_the_newest_checkpoint_copies_nothing(path: Path) -> None:
    with create(path) as folder:
        train(folder, range(4), every=2)
    assert roll_back(path, 4) == []
    assert not list(path.glob("*.undone"))
