"""What the server does in a round: draw clients, screen what they send, aggregate, step.

The server trusts nothing. A reply that is rejected or missing lowers n̂ and never b̂, because it may
have been honest; when no more than 2b̂ remain, the round is void and the model stays.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fedro import kernels
from fedro.rng import derived, stream
from fedro.rules import Rule, parse_rule

Ids = NDArray[np.int64]


@dataclass(frozen=True)
class State:
    """All that a run must remember from one round to the next."""

    round: int  # the next one
    model: Tensor  # (width,): parameters, then statistics
    previous: Tensor | None = None  # the last aggregate, for rules that start from it
    memory: Mapping[str, Tensor] = field(default_factory=dict)  # the attackers'
    chosen: Tensor | None = None  # the random iterate, once it has come

    @property
    def output(self) -> Tensor:
        """The model that the run gives: the random iterate if one was drawn, else the last."""
        return self.model if self.chosen is None else self.chosen

    def tensors(self) -> dict[str, Tensor]:
        """What a checkpoint holds; `from_tensors` reads it back."""
        found = {"model": self.model, "previous": self.previous, "chosen": self.chosen}
        kept = {name: tensor for name, tensor in found.items() if tensor is not None}
        return kept | {f"memory.{name}": tensor for name, tensor in self.memory.items()}

    @classmethod
    def from_tensors(cls, round: int, tensors: Mapping[str, Tensor]) -> "State":
        """The state that was saved."""
        if "model" not in tensors:
            raise ValueError(f"a checkpoint without a model: it has {', '.join(tensors) or 'none'}")
        memory = {
            name.removeprefix("memory."): tensor
            for name, tensor in tensors.items()
            if name.startswith("memory.")
        }
        rest = {name: tensors.get(name) for name in ("previous", "chosen")}
        return cls(round, tensors["model"], memory=memory, **rest)


def sample(seed: int, round: int, clients: int, sampled: int) -> Ids:
    """Who is invited: uniform, without replacement, independent of every other round."""
    drawn = stream(seed, "sample", round).choice(clients, size=sampled, replace=False)
    return drawn.astype(np.int64)


def screen(updates: Tensor, rows: Ids) -> dict[int, str]:
    """Which of these rows cannot be used, and why."""
    if not rows.size:
        return {}
    finite = kernels.facts(updates, rows=rows).finite
    return {int(row): "holds NaN or Inf" for row in rows[~finite]}


class Layout(Protocol):
    """Where a flat vector's parts are: a `FlatModel` knows it, and so does what messages fill."""

    @property
    def trained(self) -> int:
        """How many of the numbers are parameters; they come first."""

    @property
    def width(self) -> int:
        """How many there are, with the statistics."""

    @property
    def variances(self) -> Sequence[slice]:
        """The statistics that never go below zero."""


class Step(NamedTuple):
    """What became of a round: the new model, the aggregate, or why there is none."""

    model: Tensor
    aggregate: Tensor | None
    void: str | None


def step(
    model: Tensor,
    updates: Tensor,
    rows: Ids,
    rule: Rule,
    *,
    tolerated: int,
    server_lr: float,
    flat: Layout,
    reference: Tensor | None = None,
    seed: int = 0,
) -> Step:
    """x ← x + γ_s·A(updates) over the usable rows; statistics follow with a step of 1."""
    if rows.size <= 2 * tolerated:
        return Step(model, None, f"{rows.size} usable replies, and 2·{tolerated} may be bad")
    try:
        aggregate = rule(
            updates[:, : flat.trained], b=tolerated, rows=rows, reference=reference, seed=seed
        )
    except ValueError as error:  # too few for this rule, or no robust answer
        return Step(model, None, str(error))
    after = model.clone()
    after[: flat.trained].add_(aggregate, alpha=server_lr)
    if flat.trained < flat.width:
        average = parse_rule("trimmed_mean" if robust(rule) else "mean")
        after[flat.trained :] += average(updates[:, flat.trained :], b=tolerated, rows=rows)
        for part in flat.variances:
            after[part].clamp_(min=0.0)
    return Step(after, aggregate, None)


def robust(rule: Rule) -> bool:
    """Whether it is anything but plain averaging."""
    return [stage.name for stage in rule.stages] != ["mean"]


def starts_from_last(rule: Rule) -> bool:
    """Whether it starts from what it gave in the round before."""
    wants = {entry.reference for entry in rule.entries}
    return "optional" in wants and "needed" not in wants


def rule_seed(seed: int, round: int) -> int:
    """The dice of the rule in a round."""
    return derived(seed, "rule", round)
