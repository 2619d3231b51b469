"""Notes that survive a crash, and are deleted once checkpoints hold what they say."""

import os
import random
import shutil
import signal
import time
from pathlib import Path

import pytest

from crashes import KILLED, Disk, PowerCutError, child, deadly, ended
from fedro.runs import RunFolder, RunFolderError, roll_back
from run_folders import create, resume


def rounds_noted(folder: RunFolder) -> list[int]:
    return [note["round"] for note in folder.notes()]


def test_notes_come_back_after_a_crash(path: Path) -> None:
    with create(path) as folder:
        assert folder.notes() == []
        assert not (path / "journal.jsonl").exists()
        folder.checkpoint(0, {}, {})
        for round in range(3):
            folder.note({"round": round, "nodes": [1, 2], "text": "κ\n"})
            folder.append({"round": round})
    with resume(path) as folder:
        assert folder.notes() == [
            {"round": round, "nodes": [1, 2], "text": "κ\n"} for round in range(3)
        ]
        folder.note({"round": 0})
        assert rounds_noted(folder) == [0, 1, 2, 0]  # every attempt counts
    with resume(path) as folder:
        assert rounds_noted(folder) == [0, 1, 2, 0]


def test_a_checkpoint_forgets_what_it_holds(path: Path) -> None:
    with create(path) as folder:
        for round in range(30):
            folder.note({"round": round})
            if round % 5 == 4:
                folder.note({"round": round + 1})  # interrupted: the next round has begun
                folder.checkpoint(round + 1, {}, {})
                assert rounds_noted(folder) == [round + 1]
        assert len((path / "journal.jsonl").read_bytes().splitlines()) < 10
    with resume(path) as folder:
        assert rounds_noted(folder) == [30]


def test_notes_reach_back_to_every_kept_checkpoint(path: Path) -> None:
    """The newest checkpoint is lost or undone: the draws since the older one were made."""
    with create(path) as folder:
        for round in range(1, 7):
            folder.note({"round": round - 1})
            folder.checkpoint(round, {}, {})
        folder.note({"round": 6})
    other = path.with_name("b")
    shutil.copytree(path, other)
    newest = path / "checkpoints" / "round-000006.safetensors"
    newest.write_bytes(b"damaged")
    roll_back(other, 5)
    for run in (path, other):
        with resume(run) as folder:
            assert folder.latest().round == 5
            assert rounds_noted(folder) == [5, 6]


@pytest.mark.parametrize("entry", [{}, {"round": None}, {"round": -1}, {"round": "1"}])
def test_a_note_needs_its_round(path: Path, entry: dict[str, object]) -> None:
    with create(path) as folder, pytest.raises(ValueError, match=r"a note needs the number of its"):
        folder.note(entry)


def test_nobody_else_writes_notes(path: Path) -> None:
    with create(path) as folder:
        folder.note({"round": 0})
        (path / "journal.jsonl").write_bytes(b"")
        with pytest.raises(RunFolderError, match=r"journal\.jsonl was changed while the run was"):
            folder.note({"round": 0})
        shutil.rmtree(path)
        with pytest.raises(RunFolderError, match="moved or deleted"):
            folder.note({"round": 0})
    with pytest.raises(RunFolderError, match="was closed"):
        folder.note({"round": 0})


def test_a_file_of_that_name_is_not_overwritten(path: Path) -> None:
    path.mkdir(parents=True)
    (path / "journal.jsonl").write_text("mine")
    with pytest.raises(RunFolderError, match=r"would overwrite \(journal\.jsonl\)"):
        create(path)


def test_every_length_and_strange_bytes(path: Path) -> None:
    with create(path) as folder:
        for round in range(3):
            folder.note({"round": round, "x": "y"})
    file = path / "journal.jsonl"
    data = file.read_bytes()
    for length in range(len(data) + 1):
        file.write_bytes(data[:length])
        complete = data[:length].count(b"\n")
        with resume(path) as folder:
            assert rounds_noted(folder) == list(range(complete))
            folder.note({"round": 9})
            assert rounds_noted(folder) == [*range(complete), 9]
    for strange in (b"\0" * 40, b"[1]\n", b'{"a": 1}\n', b'{"round": "2"}\n', b"\xff\n"):
        file.write_bytes(data + strange)
        with resume(path) as folder:
            assert rounds_noted(folder) == [0, 1, 2]
        assert file.read_bytes() == data


def take_notes(path: Path, notes: int, acknowledged: Path, trial: int = 0) -> None:
    """Note as many rounds, with a checkpoint after each second one."""
    with RunFolder.resume(path, {}, {}) as folder:
        for round in range(folder._saved or 0, notes):
            folder.note({"round": round, "trial": trial})
            acknowledged.write_text(str(round))  # past the functions that kill
            if round % 2:
                folder.checkpoint(round + 1, {}, {})


def check_notes(path: Path, acknowledged: Path, when: object) -> int:
    """No acknowledged note is missing; the round from which it goes on."""
    last = int(acknowledged.read_text()) if acknowledged.exists() else -1
    with RunFolder.resume(path, {}, {}) as folder:
        start = folder._saved or 0
        noted = rounds_noted(folder)
        assert noted in ([*range(start, last + 1)], [*range(start, last + 2)]), when
        return start


@pytest.mark.parametrize("when", ["before", "torn", "after"])
def test_killed_at_every_step(tmp_path: Path, when: str) -> None:
    step, code = 0, KILLED
    while code == KILLED:
        path, acknowledged = tmp_path / str(step), tmp_path / f"{step}-acknowledged"
        RunFolder.create(path, {}, {}).close()
        take = lambda: take_notes(path, 5, acknowledged)  # noqa: B023, E731
        code = ended(child(lambda: deadly(take, step, when)))  # noqa: B023
        assert code in (0, KILLED)
        check_notes(path, acknowledged, (when, step))
        step += 1
    assert step > 40


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs Linux's /proc")
def test_power_cut_at_every_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for step in range(1000):
        path, after = tmp_path / str(step), tmp_path / f"{step}-after"
        acknowledged, disk = tmp_path / f"{step}-acknowledged", Disk(path, step)
        with disk.held, monkeypatch.context() as patch:
            disk.attach(patch)
            try:
                RunFolder.create(path, {}, {}).close()
                take_notes(path, 5, acknowledged)
            except PowerCutError:
                pass
            else:
                break
        disk.leave(path, after)
        if (after / "run.json").exists():
            check_notes(after, acknowledged, step)
        else:
            assert not acknowledged.exists()
    assert 60 < step < 999


@pytest.mark.slow
def test_kill_9_at_any_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()  # to be killed while it waits for the disk, too
    path, draw = tmp_path / "run", random.Random(0)
    RunFolder.create(path, {}, {}).close()
    for trial in range(15):
        acknowledged = tmp_path / str(trial)
        pid = child(lambda: take_notes(path, 1_000_000, acknowledged, trial))  # noqa: B023
        time.sleep(draw.uniform(0, 0.3))
        os.kill(pid, signal.SIGKILL)
        assert ended(pid) == -signal.SIGKILL
        last = int(acknowledged.read_text() or -1) if acknowledged.exists() else -1
        with RunFolder.resume(path, {}, {}) as folder:
            noted = [note["round"] for note in folder.notes() if note["trial"] == trial]
            saved = folder._saved or 0
        assert noted[: last + 1 - saved] == list(range(saved, last + 1)), trial
    assert saved > 0
