"""The server's rule, as an attacker who knows it calls it."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from fedro.attacks import moments
from fedro.attacks.view import View
from fedro.rules import Rule


@dataclass(frozen=True)
class Defense:
    """The rule with all that the server will give it in this round, its dice included."""

    rule: Rule
    tolerated: int
    reference: Tensor | None = None
    seed: int = 0
    trained: int | None = None  # columns that the rule sees; statistics come after them

    def __call__(self, updates: Tensor, rows: ArrayLike | None = None) -> Tensor:
        """What the server would compute."""
        result: Tensor = self.rule(
            updates[:, : self.trained],
            b=self.tolerated,
            rows=rows,
            reference=self.reference,
            seed=self.seed,
        )
        return result


def arrangement(view: View) -> tuple[Any, Any]:
    """The rows that the server will use, in its order, and which of them are the bad clients'."""
    rows = np.sort(np.concatenate([view.finite, view.byzantine]))
    return rows, np.isin(rows, view.byzantine)


class Trial:
    """How far a message from all bad clients moves the rule's output from the honest mean."""

    def __init__(self, view: View, room: Tensor) -> None:
        self.view = view
        self.room = room  # a row of the matrix that may be written to

    def __call__(self, message: Tensor) -> float:
        """‖A − ḡ‖; 0 where the round is void, or the server refuses the message."""
        view = self.view
        rows, bad = arrangement(view)
        if rows.size <= 2 * view.tolerated or not message.isfinite().all():
            return 0.0
        self.room.copy_(message)
        rows[bad] = view.byzantine[0]
        try:
            found = self._aggregate(rows)
        except ValueError:
            return 0.0
        value = moments.length(found - view.honest_mean[: len(found)])
        return value if math.isfinite(value) else 0.0

    def _aggregate(self, rows: Any) -> Tensor:
        rule = self.view.aggregate
        assert rule is not None
        if isinstance(rule, Defense):
            return rule(self.view.updates, rows)
        return rule(self.view.updates[torch.from_numpy(rows)])


@contextmanager
def trying(view: View) -> Iterator[Trial]:
    """Try messages in the place of the first bad client's, which comes back in the end."""
    room = view.updates[int(view.byzantine[0])]
    before = room.clone()
    try:
        yield Trial(view, room)
    finally:
        room.copy_(before)
