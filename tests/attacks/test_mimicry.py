"""Mimic, against its definition."""

import math
from dataclasses import replace

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import Tensor

from attack_cases import (
    honest_rows,
    make,
    same_bits,
    sent,
)
from fedro.attacks import (
    View,
    parse_attack,
)


def unit(v: np.ndarray) -> np.ndarray:
    return v / np.linalg.norm(v)


class PlainMimic:
    """The definition, in float64, with a list of clients."""

    def __init__(self, warmup: int) -> None:
        self.warmup, self.t, self.target = warmup, 0, -1
        self.mu = self.z = np.zeros(0)

    def __call__(self, g: np.ndarray, ids: np.ndarray, start: np.ndarray) -> int:
        t = self.t
        if t < self.warmup:
            self.mu = g.mean(0) if t == 0 else t / (t + 1) * self.mu + g.mean(0) / (t + 1)
            z = start if t == 0 else self.z
            total = unit(sum(((row - self.mu) @ z) * (row - self.mu) for row in g))
            self.z = total if t == 0 else unit(t / (t + 1) * self.z + total / (t + 1))
        if t < self.warmup or self.target not in ids:
            self.target = int(ids[np.argmax(g @ self.z)])
        self.t += 1
        return self.target


def mimic_round(number: int, memory: dict[str, Tensor]) -> View:
    """Ten of thirty clients; those from 20 on are bad, and clients differ by nature."""
    rng = np.random.default_rng([7, number])
    nature = np.random.default_rng(1).standard_normal((30, 40))
    ids = rng.choice(30, 10, replace=False)
    noise = 0.3 * rng.standard_normal((10, 40))
    updates = torch.from_numpy((nature[ids] + noise).astype(np.float32))
    return make(
        10,
        tuple(np.flatnonzero(ids >= 20)),
        40,
        updates=updates,
        ids=ids,
        round=number,
        rng=np.random.default_rng([8, number]),
        memory=memory,
    )


@pytest.mark.parametrize("warmup", [1, 4, 100])
def test_mimic_follows_its_definition(warmup: int, backend: str) -> None:
    attack, plain = parse_attack(f"mimic(warmup={warmup})"), PlainMimic(warmup)
    memory: dict[str, Tensor] = {}
    targets = []
    for number in range(14):
        view = mimic_round(number, memory)
        if not view.byzantine.size:
            continue
        start = mimic_round(number, {}).noise().numpy()
        ids = view.ids[view.honest]
        target = plain(honest_rows(view), ids, start.astype(np.float64))
        messages = sent(attack, view)
        assert int(memory["mimic.target"]) == target
        assert np.allclose(memory["mimic.direction"].numpy(), plain.z, atol=1e-5)
        assert np.allclose(memory["mimic.mean"].numpy(), plain.mu, atol=1e-5)
        row = int(view.honest[np.flatnonzero(ids == target)[0]])
        assert all(torch.equal(message, view.updates[row]) for message in messages)
        targets.append(target)
    assert len(set(targets)) > 2  # subsampling made it choose anew


def test_mimic_keeps_a_target_that_is_sampled() -> None:
    memory: dict[str, Tensor] = {}
    attack = parse_attack("mimic(warmup=2)")
    for number in range(6):
        view = make(seed=number, memory=memory, rng=np.random.default_rng(number))
        message = sent(attack, view)[0]
        if number == 1:
            frozen = int(memory["mimic.target"])
            direction = memory["mimic.direction"]
        if number > 1:
            row = int(np.flatnonzero(view.ids == frozen)[0])
            assert torch.equal(message, view.updates[row])
            assert memory["mimic.direction"] is direction
    view.updates[row, 0] = math.nan  # as good as not sampled
    sent(attack, replace(view, updates=view.updates))
    assert int(memory["mimic.target"]) != frozen


def test_mimic_goes_on_from_saved_memory_with_the_same_bits(backend: str) -> None:
    attack = parse_attack("mimic(warmup=4)")
    straight: dict[str, Tensor] = {}
    broken: dict[str, Tensor] = {}
    for number in range(8):
        broken = safetensors.torch.load(safetensors.torch.save(broken))
        a, b = mimic_round(number, straight), mimic_round(number, broken)
        assert same_bits(sent(attack, a), sent(attack, b))
    assert straight.keys() == broken.keys()
    assert all(same_bits(straight[key], broken[key]) for key in straight)


def test_mimic_never_changes_remembered_tensors() -> None:
    memory: dict[str, Tensor] = {}
    for number in range(5):
        before = {key: (tensor, tensor.clone()) for key, tensor in memory.items()}
        sent("mimic(warmup=3)", mimic_round(number, memory))
        assert all(torch.equal(old, kept) for old, kept in before.values())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("honest", [1, 2, 7])
def test_mimic_of_equal_clients(honest: int, dtype: torch.dtype, backend: str) -> None:
    """What tells them apart is rounding: no direction comes of it."""
    memory: dict[str, Tensor] = {}
    for number in range(5):
        view = make(honest + 1, (0,), 9001, memory=memory)  # the same in each round
        view = replace(view, updates=view.updates.to(dtype))
        view.updates[1:] = view.updates[1].clone()
        before = memory.get("mimic.direction")
        assert torch.equal(sent("mimic(warmup=9)", view)[0], view.updates[1])
        assert before is None or memory["mimic.direction"] is before
        if number == 0:
            torch.testing.assert_close(memory["mimic.mean"], view.updates[1])
    assert float(memory["mimic.direction"].norm()) == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize("size", [1e-7, 1e-5, 1e-3])
def test_mimics_direction_keeps_its_length(size: float, backend: str) -> None:
    """However little the clients differ."""
    memory: dict[str, Tensor] = {}
    for number in range(6):
        view = make(8, (0,), 9001, memory=memory, seed=number)
        view.updates[1:] = 1 + size * view.updates[1:]
        sent("mimic(warmup=9)", view)
        assert float(memory["mimic.direction"].double().norm()) == pytest.approx(1.0, abs=0.02)
