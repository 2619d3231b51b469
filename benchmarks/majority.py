"""The accuracy that `clip_step` saves when the last round of a run is an overrun.

    python benchmarks/majority.py

Too few clients are sampled, on purpose. The attack stays within what the rule lets pass and strikes
in overruns. Each run ends with an overrun, so no later round repairs the damage.
"""

from collections.abc import Iterator

import numpy as np

import fedro
from fedro.server import sample

EXPERIMENT = {
    "dataset": "digits",
    "clients": 50,
    "partition": "dirichlet(alpha=1.0)",
    "model": "mlp(hidden=32)",
    "byzantine": 10,
    "sampled": 9,
    "tolerated": 3,
    "attack": "ambush",
    "local_steps": 10,
    "batch_size": 16,
    "client_lr": 0.1,
    "l2": 1e-4,
}
RULES = ["nnm | trimmed_mean", "clip_step | nnm | trimmed_mean"]
ROUNDS = 60
MIN_ROUNDS_BEFORE_OVERRUN = 15


def overruns(seed: int) -> list[int]:
    """The rounds in which more Byzantine clients are sampled than tolerated."""
    setup = fedro.prepare(fedro.Experiment(**EXPERIMENT, rounds=ROUNDS, seed=seed))
    draws = (sample(seed, t, setup.experiment.clients, setup.sampled) for t in range(ROUNDS))
    counts = np.array([setup.byzantine[ids].sum() for ids in draws])
    return [int(t) for t in np.flatnonzero(counts > setup.tolerated)]


def accuracy(rule: str, rounds: int, seed: int) -> float:
    """The accuracy of the final model in percent."""
    experiment = fedro.Experiment(
        **EXPERIMENT, rule=rule, rounds=rounds, seed=seed, evaluate_every=rounds
    )
    *_, last = fedro.run(experiment)
    assert last.score is not None
    return 100 * (last.score.accuracy or 0.0)


def table(seeds: range) -> Iterator[str]:
    """A line for each seed with an overrun after training has made progress."""
    names = " | ".join(rule.replace("|", chr(92) + "|") for rule in RULES)
    yield f"| seed | overruns | last | {names} |"
    yield "|---" * (3 + len(RULES)) + "|"
    for seed in seeds:
        rounds = overruns(seed)
        if rounds and rounds[-1] >= MIN_ROUNDS_BEFORE_OVERRUN:
            ends = " | ".join(f"{accuracy(rule, rounds[-1] + 1, seed):.1f}%" for rule in RULES)
            yield f"| {seed} | {len(rounds)} | {rounds[-1]} | {ends} |"


if __name__ == "__main__":
    for line in table(range(8)):
        print(line, flush=True)
