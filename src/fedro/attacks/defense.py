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

from fedro.attacks.dispersion import length
from fedro.attacks.view import View
from fedro.rules import NoAggregateError, Rule


@dataclass(frozen=True)
class Defense:
    """The server's rule with everything that the server gives it in a round.

    Attributes:
        rule: The rule.
        tolerated: Number of Byzantine clients that the rule must withstand, b̂.
        reference: Trusted vector of the round, for rules that take one.
        seed: Seed of the rule's random choices in this round.
        trained: Number of columns that the rule aggregates; statistics come after them. None
            stands for all columns.

    Example:
        >>> from fedro.rules import parse_rule
        >>> Defense(parse_rule("median"), 1)(torch.tensor([[1.0], [2.0], [9.0]]))
        tensor([2.])
    """

    rule: Rule
    tolerated: int
    reference: Tensor | None = None
    seed: int = 0
    trained: int | None = None

    def __call__(self, updates: Tensor, rows: ArrayLike | None = None) -> Tensor:
        """Return what the server would compute.

        Args:
            updates: Matrix of updates (n, width).
            rows: Numbers of the rows to aggregate; all without it. A number may occur repeatedly.

        Returns:
            The aggregate of the trained columns.

        Raises:
            NoAggregateError: The rule has no answer, so that the round would be void.
        """
        result: Tensor = self.rule(
            updates[:, : self.trained],
            b=self.tolerated,
            rows=rows,
            reference=self.reference,
            seed=self.seed,
        )
        return result


def usable_rows(view: View) -> tuple[Any, Any]:
    """Return the rows that the server will use, in order, and a mask of the Byzantine ones."""
    rows = np.sort(np.concatenate([view.finite_honest, view.byzantine]))
    return rows, np.isin(rows, view.byzantine)


class Trial:
    """Measures how far a message from all Byzantine clients moves the aggregate."""

    def __init__(self, view: View, scratch: Tensor) -> None:
        self.view = view
        self.scratch = scratch  # a row of the matrix that may be overwritten

    def __call__(self, message: Tensor) -> float:
        """Return ‖A − ḡ‖, or 0 if the round is void or the server rejects the message."""
        view = self.view
        rows, bad = usable_rows(view)
        if rows.size <= 2 * view.tolerated or not message.isfinite().all():
            return 0.0
        self.scratch.copy_(message)
        rows[bad] = view.byzantine[0]
        try:
            aggregate = self._aggregate(rows)
        except NoAggregateError:
            return 0.0
        distance = length(aggregate - view.honest_mean[: len(aggregate)])
        return distance if math.isfinite(distance) else 0.0

    def _aggregate(self, rows: Any) -> Tensor:
        rule = self.view.aggregate
        assert rule is not None
        if isinstance(rule, Defense):
            return rule(self.view.updates, rows)
        return rule(self.view.updates[torch.from_numpy(rows)])


@contextmanager
def trial_messages(view: View) -> Iterator[Trial]:
    """Try messages in the row of the first Byzantine client, and restore that row in the end."""
    scratch = view.updates[int(view.byzantine[0])]
    before = scratch.clone()
    try:
        yield Trial(view, scratch)
    finally:
        scratch.copy_(before)
