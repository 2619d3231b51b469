"""What is seen of a run from outside, while it is written, cut back and killed."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from crashes import child, ended
from fedro.runs import Lock, RunFolderError
from fedro.runs.lock import holder
from fedro.runs.progress import Evaluation, LineTail, RunFollower, find_runs
from watched_runs import ROUNDS, begin, deployed_line, line, resume, score


def test_a_simulation_from_outside(path: Path) -> None:
    follower = RunFollower(path)
    assert not follower.begun
    with begin(path) as folder:
        status = follower.status()
        assert (status.state, status.process) == ("running", str(os.getpid()))
        assert (status.progress.rounds, status.rounds, status.deployed) == (0, ROUNDS, False)
        folder.append(line(0, missing={"4": "silent"}, score=score(0.5), kappa_seen=1.5))
        folder.append(line(1, byzantine=[1, 2, 3, 4], rejected={"1": "NaN", "4": "NaN"}))
        folder.append(line(2, void="too few", missing=dict.fromkeys("345678", "silent")))
        folder.append(line(3, score=score(0.75), kappa_seen=None))
        p = follower.status().progress
    assert p.rounds == 4
    assert p.invited == 40
    assert p.evaluations["accuracy"] == [Evaluation(0, 0.5), Evaluation(3, 0.75)]
    assert p.evaluations["loss"] == [Evaluation(0, 0.5), Evaluation(3, 0.25)]
    assert "backdoor" not in p.evaluations
    assert p.margin == (3, 10 - 2 * 3)
    assert p.lowest_margin == (2, 10 - 6 - 2 * 3)
    assert p.planned_margin == 4
    assert (p.void, p.void_in_a_row, p.last_void) == (1, 0, (2, "too few"))
    assert p.missing["4"] == {"silent": 2}
    assert p.rejected == {"1": {"NaN": 1}, "4": {"NaN": 1}}
    assert p.overruns == 1
    assert (p.kappa_seen, p.kappa_largest, p.kappa_proved) == (0.5, 1.5, 2.0)
    assert p.seconds_per_round == pytest.approx(2.0)
    assert p.seconds == pytest.approx(8.0)


def test_a_deployment_from_outside(path: Path) -> None:
    ledger = {"987": {"number": 7, "quarantined": 3}, "55": {"number": 1, "quarantined": None}}
    with begin(path, dataset="flower") as folder:
        folder.append(deployed_line(0, tolerated=4, available=31, suspects=[7]))
        (path / "ledger.json").write_text(json.dumps(ledger))
        status = RunFollower(path).status()
        folder.append(
            deployed_line(1, sampled=[], tolerated=None, void="too few online", suspects=[])
        )
        after = RunFollower(path).status().progress
    p = status.progress
    assert status.deployed
    assert p.evaluations == {"eval_acc": [Evaluation(0, 0.8, 0.7, 0.9)]}
    assert (p.margin, p.available, p.tolerated_now) == ((0, 2), 31, 4)
    assert (p.overruns, p.kappa_seen, p.suspects) == (None, None, ["7"])
    assert status.nodes == {"7": ("987", True), "1": ("55", False)}
    assert after.margin == (0, 2)  # nobody was invited in the last round
    assert (after.void_in_a_row, after.suspects) == (1, ["7"])


def test_the_servers_own_evaluation_is_shown_beside_that_of_the_clients(path: Path) -> None:
    with begin(path, dataset="flower") as folder:
        folder.append(deployed_line(0, score={**score(0.5), "clients": 0.8, "accuracy": None}))
        assert set(RunFollower(path).status().progress.evaluations) == {"eval_acc"}
        by_server = {"loss": 0.1, "accuracy": 0.6, "clients": None, "worst": None}
        folder.append(deployed_line(1, score=by_server))
        p = RunFollower(path).status().progress
    assert p.evaluations["accuracy"] == [Evaluation(1, 0.6)]


def test_states(path: Path) -> None:
    follower = RunFollower(path)
    with begin(path) as folder:
        folder.append(line(0))
        assert follower.status().state == "running"
    assert (follower.status().state, follower.status().process) == ("stopped", None)
    with resume(path) as folder:
        folder.append(line(0))
        folder.finish({}, {"problem": None})
        assert follower.status().state == "finished"
    (path / "summary.json").write_text(json.dumps({"problem": "All rounds were void."}))
    status = follower.status()
    assert (status.state, status.problem) == ("failed", "All rounds were void.")


def test_a_killed_run_is_seen_to_have_stopped(path: Path) -> None:
    begin(path).close()
    inside, outside = os.pipe()

    def hold() -> None:
        with resume(path) as folder:
            folder.append(line(0))
            os.write(outside, b"x")
            time.sleep(50)

    pid = child(hold)
    try:
        assert os.read(inside, 1) == b"x"
        follower = RunFollower(path)
        assert (follower.status().state, follower.status().process) == ("running", str(pid))
    finally:
        os.kill(pid, signal.SIGKILL)
        ended(pid)
        os.close(inside)
        os.close(outside)
    assert follower.status().state == "stopped"
    assert follower.status().progress.rounds == 1


def test_asking_for_the_lock_never_keeps_a_run_from_starting(path: Path) -> None:
    path.mkdir(parents=True)
    Lock(path).release()
    stop = threading.Event()

    def ask() -> None:
        while not stop.is_set():
            holder(path)
            time.sleep(0.001)

    askers = [threading.Thread(target=ask) for _ in range(2)]
    for asker in askers:
        asker.start()
    try:
        for _ in range(200):
            Lock(path).release()
    finally:
        stop.set()
        for asker in askers:
            asker.join()


def test_two_who_ask_do_not_take_each_other_for_a_run(path: Path) -> None:
    import fcntl

    path.mkdir(parents=True)
    assert holder(path) is None
    Lock(path).release()
    with (path / "lock").open() as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        assert holder(path) is None


def test_a_lock_that_cannot_be_read_is_an_error(path: Path) -> None:
    begin(path).close()
    (path / "lock").unlink()
    (path / "lock").symlink_to("lock")  # no user can open it, not even root
    with pytest.raises(RunFolderError, match=r"cannot read .*lock: Too many levels"):
        RunFollower(path).status()


def test_a_line_that_is_only_half_there(path: Path) -> None:
    with begin(path) as folder:
        for round in range(3):
            folder.append(line(round))
    data = (path / "rounds.jsonl").read_bytes()
    follower = RunFollower(path)
    for length in range(len(data) + 1):
        (path / "rounds.jsonl").write_bytes(data[:length])
        assert follower.status().progress.rounds == data[:length].count(b"\n")
        assert follower.status().progress.seconds == 2.0 * data[:length].count(b"\n")


def test_a_run_that_is_cut_back_and_goes_on(path: Path) -> None:
    """Between two looks, it was killed, resumed, and is further than before."""
    with begin(path) as folder:
        folder.checkpoint(0, {}, {})
        for round in range(5):
            folder.append(line(round))
        follower = RunFollower(path)
        assert follower.status().progress.rounds == 5
    with resume(path) as folder:
        for round in range(7):
            folder.append(line(round, seconds={"train": 1.23456, "aggregate": 0.25}))
        again, fresh = follower.status().progress, RunFollower(path).status().progress
    assert again == fresh
    assert (again.rounds, again.invited) == (7, 70)


def test_only_new_lines_are_read(tmp_path: Path) -> None:
    file = tmp_path / "lines"
    tail = LineTail(file)
    assert tail.new_lines() == (False, [])
    file.write_bytes(b"a\nb\nc")
    assert tail.new_lines() == (False, [b"a", b"b"])
    assert tail.new_lines() == (False, [])
    file.write_bytes(b"a\nb\ncd\n")
    assert tail.new_lines() == (False, [b"cd"])
    file.write_bytes(b"a\nx\ncd")
    assert tail.new_lines() == (True, [b"a", b"x"])
    file.unlink()
    assert tail.new_lines() == (True, [])


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"\0\0\n", r"a line of .*rounds\.jsonl is damaged"),
        (b"[]\n", r"a line of .*rounds\.jsonl is damaged: no JSON object"),
        (b"{}\n", r"damaged: 'round' is missing"),
        (json.dumps(line(0, seconds=3)).encode() + b"\n", "is damaged: "),
        (json.dumps(line(0, missing=[1])).encode() + b"\n", "is damaged: "),
    ],
)
def test_damaged_lines_are_an_error(path: Path, text: bytes, why: str) -> None:
    begin(path).close()
    (path / "rounds.jsonl").write_bytes(text)
    with pytest.raises(RunFolderError, match=why):
        RunFollower(path).status()


def test_no_run(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match=r"holds no run: it has no run\.json"):
        RunFollower(tmp_path).status()
    assert find_runs(tmp_path) == []
    assert find_runs(tmp_path / "nothing") == []
    for name in ("b", "a"):
        begin(tmp_path / name).close()
    assert find_runs(tmp_path) == [tmp_path / "a", tmp_path / "b"]


def test_watching_needs_no_torch(path: Path) -> None:
    begin(path).close()
    code = (
        "import sys; from fedro.runs.progress import RunFollower; import fedro.runs.terminal as t;"
        "t.run_frame(RunFollower(sys.argv[1]).status(), 80); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code, path], timeout=60).returncode == 0
