"""Made-up rounds for tests of attacks."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedro.attacks import Attack, View, parse_attack


def make(n: int = 7, bad: tuple[int, ...] = (1, 4), width: int = 12, **changes: Any) -> View:
    """A round of n clients with made-up messages."""
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


def sent(attack: Attack | str, view: View) -> Tensor:
    """What each bad client sends, (m, width)."""
    attack = parse_attack(attack) if isinstance(attack, str) else attack
    result = view.updates.clone()
    attack.forge(view).write(result, view.byzantine)
    return result[torch.from_numpy(view.byzantine)]


def honest_rows(view: View) -> np.ndarray:
    return view.updates.double().numpy()[view.honest]


def same_bits(a: Tensor, b: Tensor) -> bool:
    return a.numpy().tobytes() == b.numpy().tobytes()
