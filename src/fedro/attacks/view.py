"""What the Byzantine clients see of a round.

Every field, property and method of `View` that an attack may use carries a declaration
`visible(…)`. A `RestrictedView` refuses whatever has none.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Annotated, Any, Literal, TypeVar, get_args, get_type_hints

import numpy as np
import torch
from torch import Tensor

from fedro.attacks.dispersion import (
    Dispersion,
    RowNumbers,
    finite_mean,
    finite_moments,
    measure_dispersion,
)
from fedro.attacks.forged import Forged
from fedro.common.registry import unknown

Knowledge = Literal["own data", "own update", "honest updates", "rule"]
KNOWLEDGE: tuple[str, ...] = get_args(Knowledge)

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Visible:
    """Declaration of which attacks see an attribute of a view; see `visible`."""

    to: frozenset[str]  # attacks that know one of these; empty: every attack

    def __call__(self, function: F) -> F:
        """Mark the function of a property or method."""
        function.__visible__ = self  # type: ignore[attr-defined]
        return function


def visible(*knowledge: Knowledge) -> Visible:
    """Declare which attacks see a field, property or method of a `View`.

    The declaration stands directly above the function of a property or method
    (``@property`` above it), or within the annotation of a field:
    ``model: Annotated[Tensor, visible()]``.

    Args:
        *knowledge: Attacks that know at least one of these see it: "own data", "own update",
            "honest updates", "rule". Without any, every attack sees it.

    Returns:
        The declaration, which is also a decorator.

    Raises:
        ValueError: There is no knowledge of that name.

    Example:
        >>> class Wider(View):
        ...     @property
        ...     @visible("honest updates")
        ...     def honest_max(self):
        ...         return self.updates[self.honest].max()
    """
    for part in knowledge:
        if part not in KNOWLEDGE:
            raise ValueError(unknown("knowledge", part, list(KNOWLEDGE)))
    return Visible(frozenset(knowledge))


def visibility(kind: type["View"], name: str) -> Visible | None:
    """Return the declaration on an attribute of a class of views, None if there is none."""
    hints = _type_hints(kind)  # type: ignore[arg-type]  # a class can be hashed
    for item in getattr(hints.get(name), "__metadata__", ()):
        if isinstance(item, Visible):
            return item
    attribute = inspect.getattr_static(kind, name, None)
    function = getattr(attribute, "fget", getattr(attribute, "func", attribute))
    declared = getattr(function, "__visible__", None)
    return declared if isinstance(declared, Visible) else None


@cache
def _type_hints(kind: Any) -> dict[str, Any]:
    """The annotations of a class, with their metadata, also where they are written as text."""
    return get_type_hints(kind, include_extras=True)


@dataclass
class View:
    """A round as the Byzantine clients see it.

    An attack gets a restricted view: it shows what the attack declares to know, and raises
    `HiddenError` for everything else. Attacks must not modify anything here, except `memory` and
    `cache`. Means and deviations of the honest updates leave out non-finite rows, since the server
    rejects these.

    Attributes:
        updates: Matrix of updates (n̂, width). The rows of the Byzantine clients are undefined
            unless they train.
        honest: Numbers of the honest clients' rows.
        byzantine: Numbers of the Byzantine clients' rows.
        ids: The client of each row, (n̂,).
        model: The server's model (width,): parameters, then statistics.
        server_lr: Server learning rate γ_s.
        tolerated: Number of Byzantine clients that the rule must withstand, b̂.
        round: Number of the round, from 0.
        rng: Random generator of the attackers for this round.
        memory: What attacks keep from round to round. Checkpoints store it. Start a key with the
            name of the attack: "mimic.target".
        aggregate: The server's rule; in a run, a `Defense`.
        forged: What the stages before this one send.
        cache: Results that stages and searches of the same round share.
        trained: Number of columns that the rule aggregates; statistics come after them. None
            stands for all columns.

    Example:
        >>> import numpy as np
        >>> view = View(
        ...     updates=torch.tensor([[1.0], [3.0], [0.0]]), honest=np.array([0, 1]),
        ...     byzantine=np.array([2]), ids=np.arange(3), model=torch.zeros(1), server_lr=1.0,
        ...     tolerated=1, round=0, rng=np.random.default_rng(0))
        >>> view.honest_mean
        tensor([2.])
    """

    updates: Annotated[Tensor, visible("honest updates")]
    honest: Annotated[RowNumbers, visible("honest updates")]
    byzantine: Annotated[RowNumbers, visible()]
    ids: Annotated[RowNumbers, visible("honest updates")]
    model: Annotated[Tensor, visible()]
    server_lr: Annotated[float, visible()]
    tolerated: Annotated[int, visible()]
    round: Annotated[int, visible()]
    rng: Annotated[np.random.Generator, visible()]
    memory: Annotated[dict[str, Tensor], visible()] = field(default_factory=dict)
    aggregate: Annotated[Callable[..., Tensor] | None, visible("rule")] = None
    forged: Annotated[Forged, visible()] = field(default_factory=Forged)
    cache: Annotated[dict[str, Any], visible("rule")] = field(default_factory=dict)
    trained: Annotated[int | None, visible()] = None

    @property
    @visible()
    def sampled(self) -> int:
        """Number of sampled clients n̂."""
        return len(self.updates)

    @property
    @visible()
    def width(self) -> int:
        """Number of columns of an update."""
        return self.updates.shape[1]

    @cached_property
    def _honest(self) -> tuple[Tensor, RowNumbers]:
        return finite_mean(self.updates, np.asarray(self.honest, dtype=np.int64))

    @property
    @visible("honest updates")
    def any_honest_finite(self) -> bool:
        """Whether at least one honest row is finite. Reads rows only until it finds one."""
        rows = (self.updates[int(row)] for row in self.honest)
        return any(bool(row.sum().isfinite() or row.isfinite().all()) for row in rows)

    @property
    @visible("honest updates")
    def finite_honest(self) -> RowNumbers:
        """Numbers of the honest rows without NaN and Inf."""
        return self._honest[1]

    @property
    @visible("honest updates")
    def honest_mean(self) -> Tensor:
        """Mean of the honest updates (width,); zeros if there are none."""
        return self._honest[0]

    @cached_property
    @visible("honest updates")
    def honest_moments(self) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation of the honest updates, (width,) each, in one pass."""
        mean, std, finite = finite_moments(self.updates, self._honest_rows())
        vars(self)["_honest"] = mean, finite  # saves the pass for the mean
        return mean, std

    @property
    @visible("honest updates")
    def honest_std(self) -> Tensor:
        """Standard deviation (1/n) of the honest updates, (width,)."""
        return self.honest_moments[1]

    @cached_property
    @visible("honest updates")
    def dispersion(self) -> Dispersion:
        """Moments of the honest updates and the distances between them, in one pass."""
        measured = measure_dispersion(self.updates, np.sort(self._honest_rows()), self.trained)
        vars(self)["_honest"] = measured.mean, measured.rows  # saves the other passes
        vars(self)["honest_moments"] = measured.mean, measured.std
        return measured

    def _honest_rows(self) -> RowNumbers:
        """The honest rows; the finite ones if these are known already."""
        known = vars(self).get("_honest")
        return np.asarray(self.honest, dtype=np.int64) if known is None else known[1]

    @visible("own update")
    def own(self, number: int) -> Tensor:
        """Return the update (width,) that a Byzantine client trained, counted from 0."""
        return self.updates[int(self.byzantine[number])]

    @property
    @visible("own update")
    def own_updates(self) -> Tensor:
        """A copy of the updates that the Byzantine clients trained, (m, width)."""
        return self.updates[torch.from_numpy(self.byzantine)]

    @visible()
    def full(self, value: float) -> Tensor:
        """Return a message (width,) with the same value in every column."""
        return torch.full_like(self.updates[0], value)

    @visible()
    def noise(self) -> Tensor:
        """Return a message (width,) of standard normal random numbers."""
        values = self.rng.standard_normal(self.width, dtype=np.float32)
        return torch.from_numpy(values).to(self.updates)  # their type and device


class HiddenError(PermissionError):
    """An attack used something that it does not declare to know."""


class RestrictedView:
    """A view that shows one stage of an attack what it may see.

    An attribute is shown if it is declared `visible` to what the attack knows. Attributes without
    a declaration are hidden from every attack.
    """

    __slots__ = ("_attack", "_knows", "_view", "forged")

    def __init__(self, view: View, attack: str, knows: frozenset[str], forged: Forged) -> None:
        self._view = view
        self._attack = attack
        self._knows = knows
        self.forged = forged

    def __getattr__(self, name: str) -> Any:
        missing = object()
        if name[0] == "_" or inspect.getattr_static(self._view, name, missing) is missing:
            raise AttributeError(f"a view has no attribute {name!r}")
        declared = visibility(type(self._view), name)
        if declared is None:
            raise HiddenError(
                f"attack {self._attack} uses view.{name}, which is hidden from every attack: to "
                f"show it, declare it in {type(self._view).__name__}, with @visible(…) above a "
                "property or Annotated[…, visible(…)] as the type of a field"
            )
        if not declared.to or declared.to & self._knows:
            return getattr(self._view, name)
        claim = ", ".join(sorted(self._knows)) or "nothing"
        wanted = " or ".join(repr(part) for part in sorted(declared.to))
        raise HiddenError(
            f"attack {self._attack} knows {claim}, but uses view.{name}: register it with "
            f"knows={wanted}"
        )
