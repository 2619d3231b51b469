"""Artificial rounds and examples for tests of attacks, and lists of all attacks."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedro.attacks import ATTACKS, Attack, Defense, Forged, View, parse_attack
from fedro.attacks.response_curve import HonestRows, ResponseCurve
from fedro.common.stages import Stage
from fedro.data import Examples
from fedro.rules import parse_rule

EVERY = sorted(ATTACKS)
FORGERS = [name for name in EVERY if ATTACKS[name].hook == "forge"]
OMNISCIENT = [name for name in FORGERS if "honest updates" in ATTACKS[name].knows]
STRONG = ["krum", "geometric_median", "median", "trimmed_mean", "nnm | trimmed_mean", "mda"]


def default(name: str) -> Attack:
    """An attack of one stage with its default options; those without a default are 0.5."""
    options = ATTACKS[name].options
    required = {key: 0.5 for key, option in options.items() if option.required}
    return Attack((Stage(name, required),))


def variants(name: str) -> Iterator[Attack]:
    """An attack with its defaults, and with each option that changes what it knows."""
    yield default(name)
    for key in ATTACKS[name].knows_with:
        stage = default(name).stages[0]
        yield Attack((Stage(name, {**stage.options, key: True}),))


VARIANTS = [attack for name in EVERY for attack in variants(name)]


def make(n: int = 7, bad: tuple[int, ...] = (1, 4), width: int = 12, **changes: Any) -> View:
    """A round of n clients with random updates and a plain average."""
    rng = np.random.default_rng(changes.pop("seed", 0))
    updates = torch.from_numpy(rng.standard_normal((n, width)).astype(np.float32) + 0.3)
    fields: dict[str, Any] = {
        "updates": updates,
        "honest": np.setdiff1d(np.arange(n), bad),
        "byzantine": np.array(bad, dtype=np.int64),
        "ids": np.arange(n) * 10 + 3,
        "model": torch.ones(width),
        "server_lr": 1.0,
        "tolerated": 2,
        "round": 0,
        "rng": np.random.default_rng(5),
        "aggregate": lambda matrix, **_: matrix.mean(0),
    }
    return View(**{**fields, **changes})


def make_against(
    rule: str, n: int = 15, bad: int = 3, d: int = 60, seed: int = 0, **changes: Any
) -> View:
    """A round of n clients against a rule; `bad` of them are Byzantine."""
    rng = np.random.default_rng(seed)
    updates = rng.standard_normal((n, d)) * rng.uniform(0.2, 2.0, d) + rng.uniform(-0.5, 0.5, d)
    parsed = parse_rule(rule)
    needs = any(entry.reference == "needed" for entry in parsed.entries)
    defense = Defense(parsed, bad, torch.full((d,), 0.1) if needs else None, seed=4)
    fields: dict[str, Any] = {
        "updates": torch.from_numpy(updates.astype(np.float32)),
        "byzantine": np.sort(rng.choice(n, bad, replace=False)),
        "ids": np.arange(n),
        "model": torch.zeros(d),
        "server_lr": 1.0,
        "tolerated": bad,
        "round": 0,
        "rng": np.random.default_rng(5),
        "aggregate": defense,
    }
    fields["honest"] = np.setdiff1d(np.arange(n), fields["byzantine"])
    return View(**{**fields, **changes})


def sent(attack: Attack | str, view: View) -> Tensor:
    """What each Byzantine client sends, (m, width)."""
    result = view.updates.clone()
    parse_attack(attack).forge(view).write(result, view.byzantine)
    return result[torch.from_numpy(view.byzantine)]


def message_of(attack: str, view: View) -> Tensor:
    """The one message that all Byzantine clients send, (width,)."""
    rows = parse_attack(attack).forge(view).rows
    assert isinstance(rows, Tensor)
    return rows


def moved(view: View, message: Tensor) -> float:
    """‖A − ḡ‖, by the rule itself on a matrix made for it."""
    matrix = view.updates.clone()
    Forged(message).write(matrix, view.byzantine)
    assert isinstance(view.aggregate, Defense)
    gap = view.aggregate(matrix).double() - matrix[torch.from_numpy(view.honest)].double().mean(0)
    return float(gap.norm())


def curve_of(view: View, direction: Tensor) -> ResponseCurve:
    """The response curve of the round's rule for a direction."""
    assert isinstance(view.aggregate, Defense)
    return ResponseCurve(HonestRows(view, view.aggregate), direction, view.aggregate)


DIRECTIONS = {
    "std": lambda view: view.honest_std,
    "mean": lambda view: -view.honest_mean,
    "noise": lambda view: torch.randn(view.width, generator=torch.Generator().manual_seed(1)),
}


def honest_rows(view: View) -> np.ndarray:
    return view.updates.double().numpy()[view.honest]


def deviation(g: np.ndarray) -> np.ndarray:
    """The standard deviation (1/n) of the rows."""
    return np.sqrt(((g - g.mean(0)) ** 2).sum(0) / len(g))


def same_bits(a: Tensor, b: Tensor) -> bool:
    return a.numpy().tobytes() == b.numpy().tobytes()


def examples(shape: tuple[int, ...], kind: torch.dtype = torch.float32, m: int = 40) -> Examples:
    """Random examples of ten classes."""
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.integers(8, 200, size=(m, *shape))).to(kind)
    return Examples(x, torch.from_numpy(rng.integers(0, 10, size=m)))


def plain_stamp(x: np.ndarray, size: int, value: float) -> np.ndarray:
    """One example with the trigger, drawn pixel by pixel."""
    out = x.copy()
    sides = out.shape[-2:]
    for k in range(size):
        if len(sides) == 1:
            out[-1 - k] = value if k % 2 == 0 else 0
            continue
        for j in range(size):
            out[..., -1 - k, -1 - j] = value if (k + j) % 2 == 0 else 0
    return out
