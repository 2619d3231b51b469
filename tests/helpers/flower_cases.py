"""Bad clients and a small strategy for tests of Flower."""

import numpy as np

from fake_flower import (
    Time,
    model,
    raises,
    sends,
    silent,
    small_plan,
)
from fedro.flower import FedRo
from fedro.rules import DEFAULT_RULE

BAD = {
    "huge": sends(lambda w: {n: v - 1e9 for n, v in w.items()}),
    "nan": sends(lambda w: {n: v * np.nan for n, v in w.items()}),
    "raises": raises,
    "silent": silent,
    "broken": lambda m: ValueError("no such object"),
    "wrong": sends(lambda w: {"mine": np.zeros(3)}),
}


def strategy(time=None, **options):
    rule = options.pop("rule", DEFAULT_RULE)  # planned for, as users do
    given = {"plan": small_plan(rule=rule), "seed": 1, "evaluate_clients": 0, **options}
    return FedRo(**given, clock=(time or Time()).clock)


def start(fedro_, grid, rounds=3, arrays=None, **options):
    return fedro_.start(grid, arrays or model(), num_rounds=rounds, timeout=30, **options)


def arrays_as_vector(record):
    return np.concatenate([array.numpy().ravel() for array in record.values()])
