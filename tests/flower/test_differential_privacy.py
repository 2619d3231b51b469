"""FedRo inside Flower's differential-privacy wrapper, and behind noise at the clients."""

import math

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, Context, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.mod import LocalDpMod
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping
from hypothesis import given, strategies

from fake_flower import FakeGrid, honest, raises, sends
from fedro.flower import FedRo, flat_arrays
from fedro.rules import parse_rule
from flower_cases import arrays_as_vector, start, strategy
from flower_grid import federation

WIDE = ArrayRecord({"w": Array(np.zeros(40_000, np.float32))})


def plan_of_all():
    return strategy().settings.plan


@pytest.mark.slow
def test_flowers_wrapper_clips_and_adds_noise_around_fedro():
    plan = plan_of_all()
    huge = sends(lambda w: {name: value + 1e6 for name, value in w.items()})
    robust = FedRo(plan=plan, evaluate_clients=0, seed=1)
    private = DifferentialPrivacyServerSideFixedClipping(
        robust, noise_multiplier=0.7, clipping_norm=2.0, num_sampled_clients=plan.sampled
    )
    with federation({0: huge, 1: huge}) as grid:
        result = private.start(grid, WIDE, num_rounds=1, timeout=20.0)
    numbers = arrays_as_vector(result.arrays)
    each = 2.0 / math.sqrt(len(numbers))  # all honest updates are clipped to the same one
    std = 0.7 * 2.0 / plan.sampled
    assert abs(numbers.mean() - each) < 5 * std / math.sqrt(len(numbers))
    assert abs(numbers.std() - std) < 0.03 * std


@pytest.mark.slow
def test_the_wrapper_skips_a_round_in_which_a_client_fails():
    """What the page on differential privacy says; FedRo's own loop would go on."""
    plan = plan_of_all()
    private = DifferentialPrivacyServerSideFixedClipping(
        FedRo(plan=plan, evaluate_clients=0), 0.7, 2.0, plan.sampled
    )
    with federation(dict.fromkeys(range(20), raises) | {3: honest(1.0)}) as grid:
        result = private.start(grid, WIDE, num_rounds=1, timeout=20.0)
    assert not result.arrays


def test_noise_at_the_clients_works_with_flat_arrays():
    noisy = LocalDpMod(clipping_norm=1.0, sensitivity=0.01, epsilon=1.0, delta=0.1)
    app = ClientApp(mods=[flat_arrays, noisy])
    app.train()(lambda message, context: honest(1.0)(message))

    def act(message):
        return app(message, Context(1, 1, {}, RecordDict(), {}))

    result = start(strategy(flat=True), FakeGrid(default=act), 1, WIDE)
    numbers = arrays_as_vector(result.arrays)
    assert numbers.std() > 0
    assert np.isclose(numbers.mean(), 1 / math.sqrt(len(numbers)), rtol=0.1)


@given(
    strategies.integers(0, 2**32),
    strategies.integers(3, 12),
    strategies.integers(0, 5),
    strategies.integers(1, 6),
)
def test_one_client_changes_the_trimmed_mean_by_no_more_than_the_page_says(seed, n, b, d):
    b, rng = min(b, (n - 1) // 2), np.random.default_rng(seed)
    rows = rng.normal(size=(n, d)) * rng.choice([0.0, 1e-3, 1.0], size=(n, 1))
    rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1.0)  # clipped to C = 1
    other = rows.copy()
    direction = rng.normal(size=d)
    other[0] = direction / np.linalg.norm(direction)
    rule = parse_rule("trimmed_mean", b=b)
    change = np.linalg.norm(rule(torch.tensor(other)) - rule(torch.tensor(rows)))
    assert change <= math.sqrt(2 * n) / (n - 2 * b) * (1 + 1e-9)
