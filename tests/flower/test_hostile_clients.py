"""Clients that do something else in each round: no run ends, no model is bent."""

import numpy as np
import pytest
from flwr.app import Message, MetricRecord, RecordDict

from fake_flower import FakeGrid, Time, answer, honest, model, raises, small_plan, weights
from fedro.flower import FedRo


def flipped(message, rng):
    reply = honest(1.0)(message)
    if "arrays" in reply.content.array_records:
        array = reply.content["arrays"]["layer.bias"]
        data = bytearray(array.data)
        data[rng.integers(len(data))] = rng.integers(256)
        array.data = bytes(data)
    return reply


def without_content(message, rng):
    reply = honest(1.0)(message)
    reply.__dict__["_content"] = rng.choice([None, 3, "text"])
    return reply


def metrics_only(message, rng):
    record = MetricRecord({"x" * 1000: 1e308, "train_loss": -1e308, "eval_acc": 1e308})
    return Message(RecordDict({"arrays": record}), reply_to=message)


def scaled(message, rng):
    by = rng.choice([1e38, -1e38, 3e38, 1e30, 1e5, np.nan, np.inf])
    return answer(message, {name: value + by for name, value in weights(message).items()})


def misshapen(message, rng):
    shape = rng.integers(0, 4, size=rng.integers(0, 4))
    return answer(message, {name: np.zeros(shape) for name in weights(message)})


HOSTILE = [
    lambda message, rng: None,
    lambda message, rng: ValueError("unpacked"),
    lambda message, rng: raises(message),
    lambda message, rng: [honest(1.0)(message)] * int(rng.integers(2, 4)),
    scaled,
    misshapen,
    metrics_only,
    flipped,
    without_content,
]


@pytest.mark.parametrize("seed", range(6))
def test_clients_that_do_anything_at_all(seed):
    rng = np.random.default_rng(seed)

    def hostile(message):
        return HOSTILE[rng.integers(len(HOSTILE))](message, rng)

    grid = FakeGrid(20, {3: hostile, 11: hostile}, honest(1.0, eval_acc=0.8))
    strategy = FedRo(plan=small_plan(), seed=seed, evaluate_every=4, clock=Time().clock)
    result = strategy.start(grid, model(), num_rounds=20, timeout=5)
    for array in result.arrays.values():
        assert np.allclose(array.numpy(), 20.0)
    for metrics in result.evaluate_metrics_clientapp.values():
        assert metrics["eval_acc"] == pytest.approx(0.8)
        assert metrics["eval_acc-low"] == metrics["eval_acc-high"] == 0.8
