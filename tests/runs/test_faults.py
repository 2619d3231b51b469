"""The run folder under faults: killed anywhere, disks full or gone, files damaged, two at once."""

import contextlib
import errno
import os
import random
import resource
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from crashes import KILLED, Disk, PowerCutError, child, deadly, ended
from fedro.runs import Checkpoint, RunFolder, RunFolderError, read
from fedro.runs.checkpoints import pack, unpack
from fedro.runs.errors import DamagedError
from fedro.runs.round_lines import LinesMark

CONFIG, FINGERPRINT = {"rounds": 6, "rule": "krum"}, {"torch": "2"}
ROUNDS, EVERY = 6, 2


# A small run: its state is known for each round, so what is found can be checked


def state(round: int) -> dict[str, torch.Tensor]:
    return {"model": torch.arange(5.0) * round, "round": torch.tensor(round), "e": torch.empty(0)}


def line(round: int) -> dict[str, Any]:
    return {"round": round, "loss": 1 / (round + 1)}


def begin(path: Path) -> RunFolder:
    return RunFolder.create(path, CONFIG, FINGERPRINT)


def resume(path: Path) -> RunFolder:
    return RunFolder.resume(path, CONFIG, FINGERPRINT)


def go_on(path: Path, rounds: int = ROUNDS) -> None:
    """Train to the end, from wherever the folder is."""
    with resume(path) if (path / "run.json").exists() else begin(path) as folder:
        if not folder.finished:
            train(folder, rounds)


def train(folder: RunFolder, rounds: int) -> None:
    for round in range(whole(folder), rounds):
        folder.append(line(round))
        if (round + 1) % EVERY == 0:
            folder.checkpoint(round + 1, state(round + 1), {"round": round + 1})
    folder.finish(state(rounds), {"rounds": rounds})


def whole(folder: RunFolder) -> int:
    """The round to go on from; everything must be as it was after that many rounds."""
    latest = folder.latest()
    start = 0 if latest is None else latest.round
    if latest is not None:
        check(latest)
    assert folder.rounds() == [line(round) for round in range(start)]
    return start


def check(latest: Checkpoint) -> None:
    assert latest.scalars == {"round": latest.round}
    wanted = state(latest.round)
    assert set(latest.tensors) == set(wanted)
    assert all(torch.equal(latest.tensors[name], wanted[name]) for name in wanted)


def outcome(path: Path) -> dict[str, bytes]:
    """Every file but the lock and the one with the time."""
    files = [file for file in path.rglob("*") if file.is_file() and file.name != "lock"]
    return {
        str(file.relative_to(path)): b"" if file.name == "run.json" else file.read_bytes()
        for file in files
    }


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    path = tmp_path_factory.mktemp("undisturbed") / "a"
    go_on(path)
    return outcome(path)


# Killed


def deaths(path: Path, when: str, step: int) -> bool:
    """Whether a run in that folder gets as far as the step, and dies there."""
    code = ended(child(lambda: deadly(lambda: go_on(path), step, when)))
    assert code in (0, KILLED), f"{when} step {step}"
    return code == KILLED


def check_readable(path: Path) -> None:
    if (path / "run.json").exists():
        found = read(path)
        assert found.rounds == [line(round) for round in range(len(found.rounds))]


@pytest.mark.slow
@pytest.mark.parametrize("when", ["before", "torn", "after"])
def test_killed_at_every_step(tmp_path: Path, undisturbed: dict[str, bytes], when: str) -> None:
    step, path = 0, tmp_path / "a"
    while deaths(path, when, step):
        check_readable(path)
        go_on(path)
        assert outcome(path) == undisturbed, f"{when} step {step}"
        shutil.rmtree(path, ignore_errors=True)
        step += 1
        assert step < 1000
    assert step > 60


def test_killed_at_some_steps(tmp_path: Path, undisturbed: dict[str, bytes]) -> None:
    for step in range(0, 90, 9):
        path = tmp_path / str(step)
        deaths(path, ("before", "torn", "after")[step % 3], step)
        check_readable(path)
        go_on(path)
        assert outcome(path) == undisturbed, step


MORE = 8  # rounds of the extended run


def extend(path: Path) -> None:
    """Give the run more rounds, unless it has them, and train to the end."""
    config = {**CONFIG, "rounds": MORE}
    with RunFolder.resume(path, config, FINGERPRINT, may_differ=["rounds"]) as folder:
        if read(path).config["rounds"] != MORE:
            folder.extend({"rounds": MORE})
        if not folder.finished:
            train(folder, MORE)


def without_undone(files: dict[str, bytes]) -> dict[str, bytes]:
    return {name: content for name, content in files.items() if ".undone" not in name}


@pytest.mark.parametrize("when", ["before", "torn", "after"])
def test_killed_at_every_step_of_an_extension(
    tmp_path: Path, undisturbed: dict[str, bytes], when: str
) -> None:
    """It leaves the old run, complete or to be completed, or one with more rounds to go on with."""
    finished, longer, path = tmp_path / "finished", tmp_path / "longer", tmp_path / "a"
    go_on(finished)
    shutil.copytree(finished, longer)
    extend(longer)
    assert read(longer).summary == {"rounds": MORE}
    kept = {"summary.json.undone": b'{\n  "rounds": 6\n}'}
    kept["model.safetensors.undone"] = undisturbed["model.safetensors"]
    assert kept.items() <= outcome(longer).items()
    seen, step, code = set(), 0, KILLED
    while code == KILLED:
        shutil.copytree(finished, path)
        code = ended(child(lambda: deadly(lambda: extend(path), step, when)))  # noqa: B023
        assert code in (0, KILLED)
        check_readable(path)
        rounds = read(path).config["rounds"]
        seen.add((rounds, read(path).finished))
        if rounds == ROUNDS:
            go_on(path)
            assert without_undone(outcome(path)) == undisturbed, step
        extend(path)
        assert without_undone(outcome(path)) == without_undone(outcome(longer)), step
        shutil.rmtree(path)
        step += 1
    assert step > 30
    assert seen == {(ROUNDS, True), (ROUNDS, False), (MORE, False), (MORE, True)}


@pytest.mark.slow
@pytest.mark.soak
def test_killed_again_and_again(tmp_path: Path, undisturbed: dict[str, bytes]) -> None:
    """Also while it is recovering from the death before."""
    draw = random.Random(0)
    for trial in range(40):
        path = tmp_path / str(trial)
        for _ in range(6):
            deaths(path, draw.choice(["before", "torn", "after"]), draw.randrange(40))
            check_readable(path)
        go_on(path)
        assert outcome(path) == undisturbed, trial


@pytest.mark.slow
def test_kill_9_at_any_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()  # to be killed while it waits for the disk, too
    path, draw = tmp_path / "a", random.Random(0)
    begin(path).close()
    start = 0
    for _ in range(20):
        pid = child(lambda: go_on(path, rounds=1_000_000))
        time.sleep(draw.uniform(0, 0.3))
        os.kill(pid, signal.SIGKILL)
        assert ended(pid) == -signal.SIGKILL
        check_readable(path)
        with resume(path) as folder:
            now = whole(folder)
            assert now >= start
            start = now
    assert start > 0


# Power cuts: only what was synced is there afterwards


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs Linux's /proc")
def test_power_cut_at_every_step(
    tmp_path: Path, undisturbed: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint, saved = RunFolder.checkpoint, 0

    def noted(folder: RunFolder, round: int, *rest: Any) -> None:
        nonlocal saved
        checkpoint(folder, round, *rest)
        saved = round

    for step in range(1000):
        path, after, saved = tmp_path / f"{step}", tmp_path / f"{step}-after", 0
        disk = Disk(path, step)
        with disk.held, monkeypatch.context() as patch, contextlib.suppress(PowerCutError):
            patch.setattr(RunFolder, "checkpoint", noted)
            disk.attach(patch)
            go_on(path)
        disk.leave(path, after)
        if (after / "run.json").exists():
            with resume(after) as folder:
                assert folder.finished or whole(folder) >= saved, step
        else:
            assert saved == 0
        go_on(after)
        assert undisturbed.items() <= outcome(after).items(), (
            step
        )  # one checkpoint more may be back
        if disk.left >= 0:
            assert step > 60
            return
    raise AssertionError("it never came to an end")


# Full disks, limits, folders that are gone or cannot be written


def limited(size: int) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def until_trouble(folder: RunFolder, start: int) -> tuple[str, int]:
    """Rounds until one cannot be written: the message, and the round that was saved last."""
    saved = start
    for round in range(start, 10_000):
        try:
            folder.append(line(round))
            if (round + 1) % EVERY == 0:
                folder.checkpoint(round + 1, state(round + 1), {"round": round + 1})
                saved = round + 1
        except RunFolderError as error:
            return str(error), saved
    raise AssertionError("there was no trouble")


def saved_so_far(path: Path, make_trouble: Callable[[], None], reason: str) -> None:
    """Rounds until the trouble shows; what was whole stays whole, and the message says all."""
    with resume(path) as folder:
        start = whole(folder)
        make_trouble()
        message, start = until_trouble(folder, start)
    assert f"cannot write {path}/" in message
    assert reason in message
    assert f"The run is saved up to round {start}; " in message
    assert message.endswith("--resume goes on from there.")
    assert not list(path.rglob("*.tmp"))
    assert read(path).rounds == [line(round) for round in range(len(read(path).rounds))]


@pytest.mark.parametrize("size", [1200, 2000, 4001])
def test_limit_on_the_size_of_files(tmp_path: Path, size: int) -> None:
    path = tmp_path / "a"
    begin(path).close()
    with resume(path) as folder:
        folder.append(line(0))
        folder.append(line(1))
        folder.checkpoint(2, state(2), {"round": 2})
    reason = "File too large"
    assert ended(child(lambda: saved_so_far(path, lambda: limited(size), reason))) == 0
    with resume(path) as folder:
        assert whole(folder) >= 2
        folder.checkpoint(10_000, {}, {})


def test_the_first_rounds_do_not_fit(tmp_path: Path) -> None:
    path = tmp_path / "a"

    def go() -> None:
        with begin(path) as folder:
            limited(len(path.name))
            with pytest.raises(RunFolderError) as error:
                folder.append(line(0))
        assert "rounds.jsonl: File too large. No round is saved yet; raise the limit" in str(
            error.value
        )
        assert str(error.value).endswith("--resume goes on from round 0.")
        assert (path / "rounds.jsonl").read_bytes() == b""

    assert ended(child(go)) == 0
    go_on(path)


def test_no_space_to_begin(tmp_path: Path) -> None:
    path = tmp_path / "a"

    def go() -> None:
        limited(50)
        with pytest.raises(RunFolderError, match=r"run.json: File too large. Nothing was begun;"):
            begin(path)

    assert ended(child(go)) == 0
    assert [file.name for file in path.iterdir()] == ["lock"]
    go_on(path)


def test_the_model_does_not_fit(tmp_path: Path) -> None:
    path = tmp_path / "a"
    with begin(path) as folder:
        folder.append(line(0))
        folder.checkpoint(1, state(1), {"round": 1})

    def go() -> None:
        with resume(path) as folder:
            limited(2000)
            with pytest.raises(RunFolderError, match=r"model.safetensors: File too large. The run"):
                folder.finish({"x": torch.zeros(1000)}, {})
            assert not folder.finished

    assert ended(child(go)) == 0
    assert not (path / "model.safetensors").exists()
    with resume(path) as folder:
        assert whole(folder) == 1


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 1 MB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)]
    try:
        done = subprocess.run(command, capture_output=True, timeout=30)
    except OSError:
        pytest.skip("there is no mount here")
    if done.returncode:
        pytest.skip("cannot mount here")
    yield disk
    subprocess.run(["umount", str(disk)], check=True, timeout=30)


def fill(disk: Path, leave: int) -> None:
    """All of the disk but so many pages."""
    with contextlib.suppress(OSError), open(disk / "ballast", "wb", buffering=0) as file:
        while file.write(bytes(4096)):
            pass
    size = (disk / "ballast").stat().st_size
    os.truncate(disk / "ballast", size - 4096 * leave)


@pytest.mark.parametrize("leave", [0, 1, 2, 3])
def test_a_full_disk(small_disk: Path, leave: int) -> None:
    path = small_disk / "a"
    with begin(path) as folder:
        folder.append(line(0))
        folder.append(line(1))
        folder.checkpoint(2, state(2), {"round": 2})
    saved_so_far(path, lambda: fill(small_disk, leave), "No space left on device")
    with resume(path) as folder:  # needs no space
        assert whole(folder) >= 2
    (small_disk / "ballast").unlink()
    with resume(path) as folder:
        folder.checkpoint(10_000, {}, {})


def test_nothing_begins_on_a_full_disk(small_disk: Path) -> None:
    fill(small_disk, 0)
    with pytest.raises(RunFolderError, match=r"No space left on device\. .*make space on the disk"):
        begin(small_disk / "a")
    (small_disk / "ballast").unlink()
    go_on(small_disk / "a")


def test_a_disk_that_cannot_be_written(small_disk: Path) -> None:
    begin(small_disk / "a").close()
    remount = ["mount", "-o", "remount,ro", str(small_disk)]
    subprocess.run(remount, check=True, timeout=30)
    for action in (begin, resume):
        with pytest.raises(RunFolderError, match=r"Read-only file system\. .*make the folder wri"):
            action(small_disk / "a")
    assert read(small_disk / "a").rounds == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_dev_full(tmp_path: Path) -> None:
    path = tmp_path / "a"
    with begin(path) as folder:
        folder.checkpoint(1, state(1), {"round": 1})
        (path / "checkpoints" / "round-000002.safetensors.tmp").symlink_to("/dev/full")
        with pytest.raises(RunFolderError, match=r"round-000002.safetensors: No space left on dev"):
            folder.checkpoint(2, state(2), {"round": 2})
        (path / "rounds.jsonl").unlink()
        (path / "rounds.jsonl").symlink_to("/dev/full")
        with pytest.raises(RunFolderError, match=r"rounds.jsonl: No space left on device. The run"):
            folder.append(line(0))


def test_a_folder_that_may_not_be_written(tmp_path: Path) -> None:
    path = tmp_path / "a"
    begin(path).close()

    def go() -> None:
        os.chdir(path)
        with resume(Path()) as folder:
            folder.checkpoint(1, state(1), {"round": 1})
            for file in (path, path / "checkpoints", path / "rounds.jsonl"):
                file.chmod(0o555)
            if os.geteuid() == 0:
                os.seteuid(65534)
            with pytest.raises(RunFolderError, match=r"Permission denied\. .* up to round 1; make"):
                folder.append(line(0))
            with pytest.raises(
                RunFolderError, match=r"round-000002.safetensors: Permission denied"
            ):
                folder.checkpoint(2, state(2), {"round": 2})
            assert folder.rounds() == []

    pid = child(go)
    code = ended(pid)
    for file in (path, path / "checkpoints", path / "rounds.jsonl"):
        file.chmod(0o755)
    assert code == 0


@pytest.mark.parametrize("fate", ["deleted", "moved", "made anew", "without a lock"])
def test_the_folder_goes_away(tmp_path: Path, fate: str) -> None:
    path = tmp_path / "a"
    with begin(path) as folder:
        folder.append(line(0))
        folder.checkpoint(1, state(1), {"round": 1})
        if fate == "moved":
            path.rename(tmp_path / "b")
        elif fate == "without a lock":
            (path / "lock").unlink()
        else:
            shutil.rmtree(path)
        other = begin(path) if fate == "made anew" else None
        before = outcome(path)
        for write in (
            lambda: folder.append(line(1)),
            lambda: folder.checkpoint(2, state(2), {"round": 2}),
            lambda: folder.finish({}, {}),
            folder.latest,
        ):
            with pytest.raises(
                RunFolderError, match=r"moved or deleted\. The run is saved up to ro"
            ):
                write()
        assert outcome(path) == before
        if other is not None:
            other.close()
    if fate == "moved":
        with resume(tmp_path / "b") as folder:
            assert whole(folder) == 1


def test_checkpoints_are_deleted_while_it_runs(tmp_path: Path) -> None:
    with begin(tmp_path) as folder:
        shutil.rmtree(tmp_path / "checkpoints")
        with pytest.raises(
            RunFolderError, match=r"round-000001.*No such file.*put the folder back"
        ):
            folder.checkpoint(1, state(1), {})
        with pytest.raises(RunFolderError, match=r"checkpoints: No such file"):
            folder.latest()


@pytest.mark.parametrize("text", [b"", b"{}\n" * 9])
def test_lines_are_changed_while_it_runs(tmp_path: Path, text: bytes) -> None:
    with begin(tmp_path) as folder:
        folder.append(line(0))
        folder.checkpoint(1, state(1), {"round": 1})
        (tmp_path / "rounds.jsonl").write_bytes(text)
        for write in (
            lambda: folder.append(line(1)),
            lambda: folder.checkpoint(2, state(2), {"round": 2}),
        ):
            with pytest.raises(RunFolderError, match=r"was changed while the run was going on: it"):
                write()
    with resume(tmp_path) as folder:
        assert whole(folder) == 1


def test_an_error_in_the_middle_of_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also Ctrl-C: the line is taken back, and the run can be saved."""
    write = os.write
    with begin(tmp_path) as folder:
        folder.append(line(0))
        for trouble in (KeyboardInterrupt(), OSError(errno.EIO, "Input/output error")):

            def half(file: int, data: bytes, trouble: BaseException = trouble) -> int:
                write(file, data[:5])
                raise trouble

            monkeypatch.setattr(os, "write", half)
            with pytest.raises(type(trouble)):
                folder.append(line(1))
            monkeypatch.undo()
            assert folder.rounds() == [line(0)]
        folder.checkpoint(1, state(1), {"round": 1})
    with resume(tmp_path) as folder:
        assert whole(folder) == 1


# Damaged files


def two_checkpoints(path: Path) -> tuple[Path, Path]:
    """A run of four rounds with a fifth line; its checkpoints, the newest first."""
    with begin(path) as folder:
        for round in range(5):
            folder.append(line(round))
            if round in (1, 3):
                folder.checkpoint(round + 1, state(round + 1), {"round": round + 1})
    folder_ = path / "checkpoints"
    return folder_ / "round-000004.safetensors", folder_ / "round-000002.safetensors"


@pytest.mark.parametrize("damage", ["empty", "short", "flipped", "header", "longer", "renamed"])
def test_a_damaged_checkpoint_is_passed_over(
    tmp_path: Path, undisturbed: dict[str, bytes], damage: str
) -> None:
    newest, older = two_checkpoints(tmp_path)
    data = newest.read_bytes()
    damaged = {
        "empty": b"",
        "short": data[:-1],
        "flipped": data[:-3] + bytes([data[-3] ^ 1]) + data[-2:],
        "header": b"\xff" * 8 + data[8:],
        "longer": data + b"\0",
        "renamed": older.read_bytes(),
    }[damage]
    newest.write_bytes(damaged)
    with resume(tmp_path) as folder:
        assert whole(folder) == 2
        train(folder, ROUNDS)
    kept = newest.with_name(newest.name + ".damaged")
    assert kept.read_bytes() == damaged
    kept.unlink()
    assert outcome(tmp_path) == undisturbed


def test_every_checkpoint_is_damaged(tmp_path: Path) -> None:
    files = two_checkpoints(tmp_path)
    for file in files:
        file.write_bytes(file.read_bytes()[:-1])
    before = outcome(tmp_path)
    with pytest.raises(RunFolderError) as refused:
        resume(tmp_path)
    assert "every checkpoint is damaged" in str(refused.value)
    assert all(str(file) in str(refused.value) for file in files)
    assert "delete them, and --resume starts the run again from round 0" in str(refused.value)
    assert outcome(tmp_path) == before
    for file in files:
        file.unlink()
    with resume(tmp_path) as folder:
        assert whole(folder) == 0


def test_a_checkpoint_that_cannot_be_read(tmp_path: Path) -> None:
    newest, _ = two_checkpoints(tmp_path)
    newest.unlink()
    newest.mkdir()
    with pytest.raises(RunFolderError, match=r"cannot read .*round-000004.*move the file away"):
        resume(tmp_path)
    newest.rmdir()
    with resume(tmp_path) as folder:
        assert whole(folder) == 2


@pytest.mark.slow
def test_every_flipped_bit_and_every_length_is_noticed(tmp_path: Path) -> None:
    data = pack(2, state(2), {"round": 2}, LinesMark(26, "0123456789abcdef"))
    path = tmp_path / "round-000002.safetensors"
    path.write_bytes(data)
    check(unpack(path)[0])
    for length in range(len(data)):
        path.write_bytes(data[:length])
        with pytest.raises(DamagedError):
            unpack(path)
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        with pytest.raises(DamagedError):
            unpack(path)


def test_every_length_of_the_lines(tmp_path: Path) -> None:
    """Half-written lines are not read, and a resume restores what the checkpoint had."""
    two_checkpoints(tmp_path)
    file = tmp_path / "rounds.jsonl"
    data = file.read_bytes()
    for length in range(len(data) + 1):
        file.write_bytes(data[:length])
        assert read(tmp_path).rounds == [line(r) for r in range(data[:length].count(b"\n"))]
        if length % 7 == 0:
            with resume(tmp_path) as folder:
                assert whole(folder) == 4
    for strange in (b"\0" * 300, data[:60] + b"\0" * 40, data.replace(b"0.5", b"0.6"), None):
        file.unlink() if strange is None else file.write_bytes(strange)
        with resume(tmp_path) as folder:
            assert whole(folder) == 4


def test_killed_between_model_and_summary(tmp_path: Path, undisturbed: dict[str, bytes]) -> None:
    go_on(tmp_path)
    (tmp_path / "summary.json").unlink()
    assert not read(tmp_path).finished
    with resume(tmp_path) as folder:
        assert not folder.finished
        assert whole(folder) == ROUNDS
    go_on(tmp_path)
    assert outcome(tmp_path) == undisturbed


def test_only_its_own_leftovers_are_deleted(tmp_path: Path) -> None:
    begin(tmp_path).close()
    mine = [tmp_path / "notes.tmp", tmp_path / "checkpoints" / "notes.tmp"]
    left = [
        tmp_path / "summary.json.tmp",
        tmp_path / "checkpoints" / "round-000001.safetensors.tmp",
    ]
    for file in mine + left:
        file.write_text("half")
    resume(tmp_path).close()
    assert [file.exists() for file in mine + left] == [True, True, False, False]


# Other processes


def test_another_process_is_refused_until_it_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "a"
    inside, outside = os.pipe()

    def hold() -> None:
        with begin(path):
            os.write(outside, b"x")
            time.sleep(50)

    pid = child(hold)
    try:
        assert os.read(inside, 1) == b"x"
        for action in (begin, resume):
            with pytest.raises(RunFolderError, match=f"{path} is in use by process {pid}: wait"):
                action(path)
        assert read(path).rounds == []
    finally:
        os.kill(pid, signal.SIGKILL)
        assert ended(pid) == -signal.SIGKILL
        os.close(inside)
        os.close(outside)
    resume(path).close()


def test_only_one_of_many_begins(tmp_path: Path) -> None:
    path = tmp_path / "a"

    def race() -> None:
        try:
            begin(path)
        except RunFolderError:
            os._exit(3)
        time.sleep(0.2)

    codes = [ended(pid) for pid in [child(race) for _ in range(6)]]
    assert sorted(codes) == [0, 3, 3, 3, 3, 3]


def test_reading_while_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "a"
    begin(path).close()

    def write() -> None:
        with resume(path) as folder:
            for round in range(800):
                folder.append(line(round))
            time.sleep(50)

    pid = child(write)
    try:
        seen = 0
        for _ in range(15):
            check_readable(path)
            now = len(read(path).rounds)
            assert now >= seen
            seen = now
            time.sleep(0.005)
    finally:
        os.kill(pid, signal.SIGKILL)
        ended(pid)
    assert seen > 0
