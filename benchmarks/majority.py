"""What `clip_step` saves when the last round has more bad clients than the rule tolerates.

python benchmarks/majority.py

Few clients are sampled, on purpose. The bad ones stay within what the rule lets pass, and strike in
rounds with more than b̂ of them; each run ends with such a round, so nothing is made good after it.
"""

from collections.abc import Iterator

import numpy as np

import fedro
from fedro.server import sample

SETTING = {
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
ROUNDS, FEWEST = 60, 15


def bad_rounds(seed: int) -> list[int]:
    """The rounds in which more bad clients are sampled than tolerated."""
    setup = fedro.prepare(fedro.Experiment(**SETTING, rounds=ROUNDS, seed=seed))
    draws = (sample(seed, t, setup.experiment.clients, setup.sampled) for t in range(ROUNDS))
    counts = np.array([setup.byzantine[ids].sum() for ids in draws])
    return [int(t) for t in np.flatnonzero(counts > setup.tolerated)]


def accuracy(rule: str, rounds: int, seed: int) -> float:
    """Of the model after the last round."""
    experiment = fedro.Experiment(
        **SETTING, rule=rule, rounds=rounds, seed=seed, evaluate_every=rounds
    )
    *_, last = fedro.run(experiment)
    assert last.score is not None
    return 100 * (last.score.accuracy or 0.0)


def table(seeds: range) -> Iterator[str]:
    """A line for each seed that has such a round once training is under way."""
    names = " | ".join(rule.replace("|", chr(92) + "|") for rule in RULES)
    yield f"| seed | bad rounds | last | {names} |"
    yield "|---" * (3 + len(RULES)) + "|"
    for seed in seeds:
        found = bad_rounds(seed)
        if found and found[-1] >= FEWEST:
            ends = " | ".join(f"{accuracy(rule, found[-1] + 1, seed):.1f}%" for rule in RULES)
            yield f"| {seed} | {len(found)} | {found[-1]} | {ends} |"


if __name__ == "__main__":
    for line in table(range(8)):
        print(line, flush=True)
