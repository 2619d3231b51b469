"""What the bad clients see of a round, and what they hand back."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedro import kernels
from fedro.attacks import moments
from fedro.attacks.dispersion import Crowd, gather

Rows = NDArray[np.int64]
Writer = Callable[[Tensor, Rows], object]  # puts a message for each into rows of a matrix

PARTS = ["own data", "own update", "honest updates", "rule"]  # what there is to know
NEEDS = {  # one of these parts must be known; what is not listed, every client is told
    "updates": {"honest updates"},
    "own": {"own update"},
    "own_updates": {"own update"},
    "honest": {"honest updates"},
    "ids": {"honest updates"},
    "finite": {"honest updates"},
    "informed": {"honest updates"},
    "crowd": {"honest updates"},
    "honest_moments": {"honest updates"},
    "honest_mean": {"honest updates"},
    "honest_std": {"honest updates"},
    "aggregate": {"rule"},
    "kept": {"rule"},
}


class Forged(NamedTuple):
    """What the bad clients send."""

    # One for all; or one for each, which may be gone when the next is made; None: their own.
    rows: Tensor | Iterable[Tensor] | Writer | None = None
    model: Tensor | None = None  # the server is seized, and its model becomes this
    name: str | None = None  # which of several attacks it is

    def write(self, updates: Tensor, rows: Rows) -> None:
        """Put the messages into the matrix, one after the other."""
        if self.rows is None:
            return
        if callable(self.rows):
            self.rows(updates, rows)
            return
        messages = repeat(self.rows) if isinstance(self.rows, Tensor) else self.rows
        for message, row in zip(messages, rows, strict=False):  # messages first: they are counted
            updates[int(row)] = message


@dataclass
class View:
    """A round as the attackers see it; nothing here may be modified, except `memory` and `kept`.

    The mean and the deviation are those of the honest messages that are finite: a message with
    NaN or Inf will not get past the server, so nobody would copy it.
    """

    updates: Tensor  # (n̂, width); the bad clients' rows are garbage unless the attack trains
    honest: Rows  # numbers of the honest clients' rows
    byzantine: Rows  # numbers of the bad clients' rows
    ids: Rows  # (n̂,) the client of each row
    model: Tensor  # (width,) the server's: parameters, then statistics
    server_lr: float
    tolerated: int  # b̂
    round: int
    rng: np.random.Generator
    memory: dict[str, Tensor] = field(default_factory=dict)  # kept from round to round
    aggregate: Callable[..., Tensor] | None = None  # the server's rule: a `Defense` in a run
    forged: Forged = field(default_factory=Forged)  # what the stages before send
    kept: dict[str, Any] = field(default_factory=dict)  # what is used again in this round
    trained: int | None = None  # columns that the rule sees; statistics come after them

    @property
    def sampled(self) -> int:
        """How many clients were asked, n̂."""
        return len(self.updates)

    @property
    def width(self) -> int:
        """How many numbers a message has."""
        return self.updates.shape[1]

    @cached_property
    def _honest(self) -> tuple[Tensor, Rows]:
        return moments.mean(self.updates, np.asarray(self.honest, dtype=np.int64))

    @property
    def informed(self) -> bool:
        """Is there an honest row without NaN and Inf? One is enough: no pass over all of them."""
        rows = (self.updates[int(row)] for row in self.honest)
        return any(bool(row.sum().isfinite() or row.isfinite().all()) for row in rows)

    @property
    def finite(self) -> Rows:
        """Numbers of the honest rows without NaN and Inf."""
        return self._honest[1]

    @property
    def honest_mean(self) -> Tensor:
        """(width,) the mean of the honest messages; zeros if there is none."""
        return self._honest[0]

    @cached_property
    def honest_moments(self) -> tuple[Tensor, Tensor]:
        """(width,) each: mean and standard deviation of the honest messages, in one pass."""
        known = vars(self).get("_honest")
        rows = np.asarray(self.honest, dtype=np.int64) if known is None else known[1]
        mean, std, finite = moments.moments(self.updates, rows)
        vars(self)["_honest"] = mean, finite  # no pass of its own
        return mean, std

    @cached_property
    def crowd(self) -> Crowd:
        """The honest messages: their moments and the distances between them, in one pass."""
        known = vars(self).get("_honest")
        rows = np.asarray(self.honest, dtype=np.int64) if known is None else known[1]
        found = gather(self.updates, np.sort(rows), self.trained)
        vars(self)["_honest"] = found.mean, found.rows  # no passes of their own
        vars(self)["honest_moments"] = found.mean, found.std
        return found

    @property
    def honest_std(self) -> Tensor:
        """(width,) the standard deviation (1/n) of the honest messages."""
        return self.honest_moments[1]

    def own(self, number: int) -> Tensor:
        """(width,) what a bad client would have sent, had it been honest; counted from 0."""
        return self.updates[int(self.byzantine[number])]

    @property
    def own_updates(self) -> Tensor:
        """(m, width) a copy of what the bad clients would have sent."""
        return self.updates[torch.from_numpy(self.byzantine)]

    def full(self, value: float) -> Tensor:
        """(width,) a message of one number."""
        return torch.full_like(self.updates[0], value)

    def noise(self) -> Tensor:
        """(width,) numbers from the standard normal distribution."""
        room = torch.empty_like(self.updates[:1])
        kernels.normal(room, self.rng)
        return room[0]


class HiddenError(PermissionError):
    """An attack looked at something that it says it does not know."""


class Restricted:
    """A view that shows only what an attack says it knows."""

    __slots__ = ("_knows", "_name", "_view", "forged")

    def __init__(self, view: View, name: str, knows: frozenset[str], forged: Forged) -> None:
        self._view = view
        self._name = name
        self._knows = knows
        self.forged = forged

    def __getattr__(self, name: str) -> Any:
        """The view's, if it may be seen."""
        if name.startswith("_"):
            raise AttributeError(f"a view has no {name}")
        needed = NEEDS.get(name)
        if needed is None or needed & self._knows:
            return getattr(self._view, name)
        claim = ", ".join(sorted(self._knows)) or "nothing"
        wanted = " or ".join(repr(part) for part in sorted(needed))
        raise HiddenError(
            f"attack {self._name} knows {claim}, but looks at view.{name}: "
            f"register it with knows={wanted}"
        )
