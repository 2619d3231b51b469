"""A run that is killed again and again, at random moments, ends with the bits of one left alone.

python tests/soak/kills.py --times 50
"""

import argparse
import contextlib
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fedro.common.atomic_files import TEMPORARY_SUFFIX
from fedro.runs import read

SETTINGS = {
    "dataset": "digits",
    "clients": 20,
    "model": "mlp(hidden=16)",
    "byzantine": 4,
    "attack": "mimic(warmup=30)",
    "local_steps": 2,
    "batch_size": 8,
    "evaluate_every": 20,
    "checkpoint_every": 3,
    "engine": "workers",
    "workers": 2,
}
WAYS = ["main", "worker", "all", "writing", "disk"]
START_TIMEOUT = 120.0  # seconds


def command(path: Path, rounds: int) -> list[str]:
    """Begin the run, or go on with it."""
    values = {**SETTINGS, "rounds": rounds}
    sets = [text for key, value in values.items() for text in ("--set", f"{key}={value}")]
    begun = (path / "run.json").exists()
    start = [sys.executable, "-m", "fedro", "run", "--out", str(path), "--quiet"]
    return [*start, "--resume"] if begun else [*start, "demo", *sets]


@contextlib.contextmanager
def started(path: Path, rounds: int, room: int | None = None) -> Iterator[subprocess.Popen[str]]:
    """The run in a process group of its own, of which nothing is left afterwards."""

    def limit() -> None:
        if room is not None:  # no file may grow beyond it: a disk that is full, for this process
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))

    child = subprocess.Popen(
        command(path, rounds),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=limit,
    )
    try:
        yield child
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.communicate(timeout=START_TIMEOUT)


def workers_of(pid: int) -> list[int]:
    """The processes that a process has started."""
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def kill(child: subprocess.Popen[str], way: str, path: Path, delay: float) -> bool:
    """Wait for the moment, then kill; whether it was still running."""
    began = time.monotonic()
    while child.poll() is None and time.monotonic() - began < delay:
        time.sleep(0.001)
    while way == "writing" and child.poll() is None and time.monotonic() - began < START_TIMEOUT:
        if any(name.endswith(TEMPORARY_SUFFIX) for name in names(path)):
            break
    if child.poll() is not None:
        return False
    if way == "worker" and (found := workers_of(child.pid)):
        os.kill(found[-1], signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(timeout=START_TIMEOUT)
    elif way == "all":
        os.killpg(child.pid, signal.SIGKILL)
    else:
        child.kill()
    return True


def names(path: Path) -> list[str]:
    """All names in a folder and one below."""
    with contextlib.suppress(FileNotFoundError):
        return [entry.name for entry in (*path.iterdir(), *path.glob("*/*"))]
    return []


def saved(path: Path) -> int:
    """The round of the newest checkpoint."""
    found = [int(file.stem.removeprefix("round-")) for file in path.rglob("round-*.safetensors")]
    return max(found, default=0)


def outcome(path: Path) -> tuple[Any, ...]:
    """What must be the same, however often a run was stopped: all but the clock."""
    run = read(path)
    assert run.summary is not None
    rounds = [{k: v for k, v in line.items() if k != "seconds"} for line in run.rounds]
    summary = {k: v for k, v in run.summary.items() if k != "seconds"}
    return rounds, summary, (path / "model.safetensors").read_bytes()


def finish(path: Path, rounds: int) -> None:
    """Let it run to the end."""
    with started(path, rounds) as child:
        _, error = child.communicate(timeout=10 * START_TIMEOUT)
        assert child.returncode == 0, error


def soak(folder: Path, times: int, seed: int = 1, rounds: int = 300) -> Counter[str]:
    """How often it was killed in each way; an error if anything was lost or is not the same.

    A run that comes to its end is compared with one left alone, and another is begun.
    """
    rng, killed, path = random.Random(seed), Counter[str](), folder / "killed"
    began = time.monotonic()
    finish(folder / "whole", rounds)
    usual = time.monotonic() - began
    for number in range(20 * times):
        if killed.total() == times:
            break
        if (path / "summary.json").exists():
            assert outcome(path) == outcome(folder / "whole"), "another result"
            path = folder / f"killed-{number}"
        way = WAYS[number % len(WAYS)]
        room = rng.randrange(2_000, 40_000) if way == "disk" else None
        before = saved(path)
        with started(path, rounds, room) as child:
            stopped = kill(child, way, path, rng.uniform(0, 0.6 * usual))
            if stopped or (way == "disk" and child.returncode):  # a full disk ends it
                killed[way] += 1
        assert saved(path) >= before, f"checkpoints of round {before} are lost"
        if path.exists() and (path / "run.json").exists():
            read(path)  # whatever is there can be read
    finish(path, rounds)
    assert outcome(path) == outcome(folder / "whole"), "another result"
    assert killed.total() == times, f"only {killed} in {20 * times} starts"
    return killed


def main() -> None:
    """From the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        killed = soak(Path(folder), chosen.times, chosen.seed, chosen.rounds)
    ways = ", ".join(f"{way} {times}" for way, times in sorted(killed.items()))
    print(
        f"killed {killed.total()} times (seed {chosen.seed}; {ways}): nothing lost, the same bits, "
        f"{time.monotonic() - began:.0f} s"
    )


if __name__ == "__main__":
    main()
