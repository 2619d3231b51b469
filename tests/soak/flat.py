"""Memory stays flat over many rounds.

python tests/soak/flat.py --rounds 2000
"""

import argparse
import gc
import tempfile
from pathlib import Path

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


def growth(rounds: int, folder: Path) -> tuple[float, float]:
    """Megabytes after a tenth of the rounds, and at the end."""
    experiment = fedro.Experiment(**SETTINGS, rounds=rounds)
    early = 0.0
    for round_ in fedro.run_into(folder / "run", experiment):
        if round_.round + 1 == rounds // 10:
            early = anonymous()
    return early, anonymous()


def main() -> None:
    """From the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=2000)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as folder:
        early, late = growth(rounds, Path(folder))
    print(
        f"RssAnon after {rounds // 10} rounds {early:.1f} MB, after {rounds} {late:.1f} MB: "
        f"{1024 * (late - early) / (rounds - rounds // 10):+.2f} kB a round"
    )


if __name__ == "__main__":
    main()
