"""Memory stays flat over many rounds, and so do the bytes that are written in a round.

PYTHONPATH=tests/helpers python tests/soak/flat.py --rounds 2000
"""

import argparse
import gc
import logging
import tempfile
from pathlib import Path
from typing import NamedTuple

import fedro

SETTINGS = {
    "dataset": "digits",
    "clients": 20,
    "model": "mlp(hidden=16)",
    "byzantine": 4,
    "attack": "mimic",
    "rule": "nnm | trimmed_mean",
    "local_steps": 2,
    "batch_size": 8,
    "evaluate_every": 10,
    "checkpoint_every": 10,
    "sampled": 12,
    "tolerated": 4,
}


def anonymous() -> float:
    """Megabytes of memory that belong to no file."""
    gc.collect()
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon"):
            return int(line.split()[1]) / 1024
    raise OSError("no RssAnon in /proc/self/status")


def written() -> float:
    """Megabytes that this process has written to files until now."""
    for line in Path("/proc/self/io").read_text().splitlines():
        if line.startswith("wchar"):
            return int(line.split()[1]) / 1e6
    raise OSError("no wchar in /proc/self/io")


class Usage(NamedTuple):
    """What a run used: megabytes of memory, and megabytes written in a part of the run."""

    early_memory: float
    late_memory: float
    first_tenth: float
    last_tenth: float
    all_rounds: float


def usage(rounds: int, folder: Path) -> Usage:
    """Simulate, and see what the first and the last tenth of the rounds use."""
    experiment = fedro.Experiment(**SETTINGS, rounds=rounds)
    memory, start, marks = 0.0, written(), {0: written()}
    for round_ in fedro.run_into(folder / "run", experiment):
        if round_.round + 1 == rounds // 10:
            memory = anonymous()
        if (round_.round + 1) % (rounds // 10) == 0:
            marks[round_.round + 1] = written()
    first, *_, before, last = marks.values()
    tenth = marks[rounds // 10] - first
    return Usage(memory, anonymous(), tenth, last - before, last - start)


def written_on_flower(rounds: int, folder: Path) -> float:
    """Megabytes that Flower's server app writes, with a checkpoint after every round."""
    from fake_flower import FakeGrid, raises, small_plan
    from flower_cases import start, strategy

    logging.getLogger("flwr").setLevel(logging.ERROR)
    grid, before = FakeGrid(20, {0: raises}), written()
    start(strategy(plan=small_plan(rounds=rounds), folder=folder / "run"), grid, rounds)
    return written() - before


def main() -> None:
    """From the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=2000)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as folder:
        used = usage(rounds, Path(folder))
        lines = (Path(folder) / "run" / "rounds.jsonl").stat().st_size / 1e6
    growth = 1024 * (used.late_memory - used.early_memory) / (rounds - rounds // 10)
    print(
        f"RssAnon after {rounds // 10} rounds {used.early_memory:.1f} MB, after {rounds} "
        f"{used.late_memory:.1f} MB: {growth:+.2f} kB a round"
    )
    print(
        f"written: {used.all_rounds:.1f} MB, in the first tenth of the rounds "
        f"{used.first_tenth:.2f} MB, in the last {used.last_tenth:.2f} MB; "
        f"rounds.jsonl has {lines:.2f} MB"
    )
    with tempfile.TemporaryDirectory() as folder:
        megabytes = written_on_flower(rounds, Path(folder))
        lines = (Path(folder) / "run" / "rounds.jsonl").stat().st_size / 1e6
    print(f"written on Flower: {megabytes:.1f} MB; rounds.jsonl has {lines:.2f} MB")


if __name__ == "__main__":
    main()
