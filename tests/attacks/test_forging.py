"""Forged updates with a closed formula, against their definitions."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from attack_cases import (
    deviation,
    honest_rows,
    make,
    same_bits,
    sent,
)
from fedro.attacks import (
    parse_attack,
)
from fedro.attacks.forging import hiding_z

DEFINITIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "sign_flip": lambda g: -g.sum(0) / len(g),
    "foe": lambda g: -2.0 * g.sum(0) / len(g),
    "foe(tau=0.1)": lambda g: -0.1 * g.sum(0) / len(g),
    "foe(tau=-1)": lambda g: g.sum(0) / len(g),
    "alie(z=1.5)": lambda g: g.mean(0) + 1.5 * deviation(g),
    "alie(z=1.5, sign=-1)": lambda g: g.mean(0) - 1.5 * deviation(g),
    "zero": lambda g: np.zeros(g.shape[1]),
    "huge": lambda g: np.full(g.shape[1], 1e30),
    "huge(value=-2.5)": lambda g: np.full(g.shape[1], -2.5),
    "inf": lambda g: np.full(g.shape[1], math.inf),
    "nan": lambda g: np.full(g.shape[1], math.nan),
}


@pytest.mark.parametrize("text", DEFINITIONS)
@pytest.mark.parametrize("shape", [(7, (1, 4), 12), (2, (0,), 3), (26, (2, 3, 25), 7000)])
def test_definitions(text: str, shape: tuple[int, tuple[int, ...], int], backend: str) -> None:
    view = make(*shape)
    wanted = DEFINITIONS[text](honest_rows(view))
    for message in sent(text, view):
        assert np.allclose(message.numpy(), wanted, rtol=1e-6, atol=1e-7, equal_nan=True)


@pytest.mark.parametrize(
    ("sampled", "byzantine", "z"), [(25, 5, 0.2533), (26, 11, 0.8416), (26, 3, 0.0545)]
)
def test_z_of_alie(sampled: int, byzantine: int, z: float) -> None:
    assert hiding_z(sampled, byzantine) == pytest.approx(z, abs=5e-5)
    view = make(sampled, tuple(range(byzantine)))
    g = honest_rows(view)
    got = sent("alie", view)[0].double().numpy()
    assert np.allclose(got, g.mean(0) + hiding_z(sampled, byzantine) * deviation(g), atol=1e-6)


def test_z_of_alie_is_finite_for_all_numbers() -> None:
    for sampled in range(1, 60):
        found = [hiding_z(sampled, bad) for bad in range(1, sampled + 1)]
        assert np.isfinite(found).all()
        assert min(found) > -0.5
        assert found[-2:] == [0.0] * len(found[-2:])  # nobody or one honest: no deviation


def test_own_sign_flip() -> None:
    view = make()
    own = view.updates[[1, 4]]
    assert torch.equal(sent("sign_flip(own=True)", view), -own)
    assert parse_attack("sign_flip(own=True)").trains


def test_gauss() -> None:
    view = make(width=20_000)
    got = sent("gauss(std=2.0, mean=1.0)", view).double()
    assert got.mean(1).numpy() == pytest.approx([1.0, 1.0], abs=0.06)
    assert got.std(1).numpy() == pytest.approx([2.0, 2.0], rel=0.02)
    assert not torch.equal(got[0], got[1])
    again = make(width=20_000)
    assert torch.equal(sent("gauss(std=2.0, mean=1.0)", again).double(), got)


def test_gauss_writes_into_rows_of_any_type() -> None:
    for dtype in (torch.float64, torch.bfloat16):
        view = make(width=20_000)
        view.updates = view.updates.to(dtype)
        got = sent("gauss(std=2.0, mean=1.0)", view)
        assert got.dtype == dtype
        torch.testing.assert_close(
            got.float(), sent("gauss(std=2.0, mean=1.0)", make(width=20_000)), rtol=1e-2, atol=0
        )


@pytest.mark.parametrize("bad", [(1,), (1, 4), (0, 1, 2, 3, 4, 5, 6)])
@pytest.mark.parametrize("server_lr", [1.0, 0.25])
def test_scaling_replaces_the_model(bad: tuple[int, ...], server_lr: float) -> None:
    view = make(bad=bad, server_lr=server_lr)
    own, honest = view.updates[list(bad)].double(), view.updates[view.honest].double()
    messages = sent("scaling", view)
    assert torch.allclose(messages.double(), own * 7 / (server_lr * len(bad)), rtol=1e-6)
    mean = (messages.double().sum(0) + honest.sum(0)) / 7
    theirs = view.model + own.mean(0) + server_lr * honest.sum(0) / 7
    assert torch.allclose(view.model + server_lr * mean, theirs, atol=1e-6)
    assert torch.allclose(sent("scaling(factor=-3.0)", view), -3 * view.updates[list(bad)])


def test_scaling_sends_what_was_trained_on_poison() -> None:
    attack = parse_attack("backdoor | scaling")
    assert attack.trains
    assert attack.knows == {"own data", "own update"}
    assert parse_attack("backdoor").trains
    assert same_bits(sent("foe | scaling", make()), sent("scaling", make()))
    assert torch.equal(sent("scaling(factor=1.0)", make()), sent("none", make()))


def test_scaling_makes_one_message_at_a_time() -> None:
    rows = parse_attack("scaling").forge(make(bad=(0, 2, 4))).rows
    assert rows is not None
    assert not isinstance(rows, Tensor)
    assert len({message.data_ptr() for message in rows}) == 1
