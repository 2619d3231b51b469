"""The server's part of a round: sample clients, check what they send, take one robust step.

The server trusts nothing. A rejected or missing reply reduces the number of updates (n̂) and never
the tolerance (b̂), because it may have come from an honest client. When at most 2b̂ updates remain,
the round is void and the model stays as it is.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from fedro import kernels
from fedro.common.streams import derived, stream
from fedro.rules import NoAggregateError, Rule, parse_rule
from fedro.server.evidence import observe
from fedro.server.exclusion import exclude
from fedro.server.scores import Ids
from fedro.server.state import Round
from fedro.server.suspects import DEFAULT_FDR, look_at, suspects

NOT_FINITE = "holds NaN or Inf"  # why an update is rejected


class Layout(Protocol):
    """Where the parts of a flat model are: parameters first, then statistics."""

    @property
    def trained(self) -> int:
        """How many of the numbers are parameters."""

    @property
    def width(self) -> int:
        """How many numbers there are in all."""

    @property
    def variances(self) -> Sequence[slice]:
        """The statistics that are variances, which never go below zero."""


class Step(NamedTuple):
    """The new model and the aggregate; or the old model and the reason why the round is void."""

    model: Tensor
    aggregate: Tensor | None
    void: str | None


def sample(seed: int, round: int, clients: int, sampled: int) -> Ids:
    """Draw the clients to invite: uniformly, without replacement, independently each round.

    Args:
        seed: The seed of the run.
        round: The round; each has a random stream of its own.
        clients: n, the number of clients to draw from.
        sampled: n̂, the number of clients to draw.

    Returns:
        The ids of the drawn clients, from 0 to n−1.
    """
    drawn = stream(seed, "sample", round).choice(clients, size=sampled, replace=False)
    return drawn.astype(np.int64)


def screen(updates: Tensor, rows: Ids) -> dict[int, str]:
    """Find the rows that cannot be used, with the reason for each."""
    if not rows.size:
        return {}
    finite = kernels.facts(updates, rows=rows).finite
    return {int(row): NOT_FINITE for row in rows[~finite]}


def step(
    model: Tensor,
    updates: Tensor,
    rows: Ids,
    rule: Rule,
    *,
    tolerated: int,
    server_lr: float,
    layout: Layout,
    reference: Tensor | None = None,
    seed: int = 0,
) -> Step:
    """Take the step x ← x + γ_s·A(updates) over the usable rows.

    Statistics are aggregated per coordinate and always move with a step of 1.

    Args:
        model: The flat model x (width,).
        updates: The matrix of updates (n̂, width). It is not modified.
        rows: The rows that can be used.
        rule: The rule A.
        tolerated: b̂, the number of Byzantine rows to tolerate.
        server_lr: γ_s.
        layout: Where parameters and statistics are.
        reference: A trusted update, for rules that compare with one.
        seed: The seed of the rule's own random draws.

    Returns:
        The new model; or the old one, if too few rows are usable for b̂ or for the rule.

    Raises:
        UserCodeError: A rule of the user's own failed.
    """
    if rows.size <= 2 * tolerated:
        needed = 2 * tolerated + 1
        reason = f"{rows.size} usable replies, but tolerating {tolerated} needs at least {needed}"
        return Step(model, None, reason)
    try:
        aggregated = rule(
            updates[:, : layout.trained], b=tolerated, rows=rows, reference=reference, seed=seed
        )
    except NoAggregateError as error:  # too few rows for this rule, or no robust answer
        return Step(model, None, str(error))
    after = model.clone()
    after[: layout.trained].add_(aggregated, alpha=server_lr)
    if layout.trained < layout.width:
        average = parse_rule("trimmed_mean" if is_robust(rule) else "mean")
        after[layout.trained :] += average(updates[:, layout.trained :], b=tolerated, rows=rows)
        for part in layout.variances:
            after[part].clamp_(min=0.0)
    return Step(after, aggregated, None)


def aggregate(
    round_: Round,
    updates: Tensor,
    usable: Ids,
    rule: Rule,
    *,
    tolerated: int,
    server_lr: float,
    layout: Layout,
    seed: int,
    reference: Tensor | None = None,
    require_finite: bool = False,
    exclude_suspects: bool = False,
    fdr: float = DEFAULT_FDR,
) -> Tensor | None:
    """Take the round's step and record it in `round_`, with the evidence about the clients.

    The arguments are those of `step`, except for these:

    Args:
        round_: The current round. Its state, `void`, `kappa_proved`, `excluded`, `evidence` and
            `suspects` are set. Row i of the updates is from client `round_.sampled[i]`.
        usable: The rows that can be used.
        seed: The seed of the run, from which the rule's seed is derived.
        reference: Ignored if the rule starts from its own last output.
        require_finite: Make the round void if the new model would hold NaN or Inf.
        exclude_suspects: Leave out copies and the rows of flagged clients.
        fdr: The rate of false discoveries at which clients are flagged.

    Returns:
        The aggregate, or None if the round is void.
    """
    state, rows, trained = round_.state, usable, updates[:, : layout.trained]
    round_.suspects = suspects(state.evidence)  # also if the round will be void
    if starts_from_last(rule):
        reference = state.previous
    if exclude_suspects:
        evidence, clients = state.evidence, round_.sampled
        rows, round_.excluded = exclude(trained, usable, clients, evidence, rule, tolerated)
    model, aggregated, void = step(
        state.model,
        updates,
        rows,
        rule,
        tolerated=tolerated,
        server_lr=server_lr,
        layout=layout,
        reference=reference,
        seed=rule_seed(seed, round_.round),
    )
    if void is None and require_finite and not torch.isfinite(model).all():
        void = "the new model would hold NaN or Inf"
    round_.void = void
    if void is not None or aggregated is None:
        return None
    previous = aggregated if starts_from_last(rule) else state.previous
    round_.state = replace(state, model=model, previous=previous)
    round_.kappa_proved = _kappa(rule, rows.size, tolerated)
    gather_evidence(round_, trained, usable, aggregated, fdr)
    return aggregated


def gather_evidence(
    round_: Round, updates: Tensor, usable: Ids, aggregated: Tensor, fdr: float
) -> None:
    """Record what this round shows of each client, and who is flagged after it."""
    round_.evidence = observe(updates, usable, aggregated, round_.sampled)
    evidence = look_at(round_.state.evidence.add(round_.evidence), round_.round, fdr)
    round_.suspects = suspects(evidence)
    round_.state = replace(round_.state, evidence=evidence)


def _kappa(rule: Rule, n: int, b: int) -> float | None:
    """The proved κ, or None if there is none for so many rows.

    The rule may have dropped rows as Byzantine and so be valid although (n, b) is not.
    """
    try:
        return rule.kappa(n, b)
    except NoAggregateError:
        return None


def is_robust(rule: Rule) -> bool:
    """Whether the rule is anything but plain averaging."""
    return [stage.name for stage in rule.stages] != ["mean"]


def starts_from_last(rule: Rule) -> bool:
    """Whether the rule starts from its own output of the round before."""
    references = {entry.reference for entry in rule.entries}
    return "optional" in references and "needed" not in references


def rule_seed(seed: int, round: int) -> int:
    """The seed of the rule's own random draws in a round."""
    return derived(seed, "rule", round)
