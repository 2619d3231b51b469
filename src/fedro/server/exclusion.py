"""Leave out the rows of suspects before the rule sees them. The tolerance b̂ stays as it is."""

from collections.abc import Sequence
from contextlib import suppress

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fedro import kernels
from fedro.rules import Rule
from fedro.server.evidence import Evidence, Floats, copy_groups
from fedro.server.scores import Ids


def exclude(
    updates: Tensor, rows: Ids, clients: Ids, evidence: Evidence, rule: Rule, tolerated: int
) -> tuple[Ids, dict[int, str]]:
    """The rows to aggregate, and the clients that are left out, with the reason.

    Of each group of copies one row is kept, so nobody can have an honest client excluded by copying
    it. Then the rows of clients that are flagged for their direction are left out, the most extreme
    first. Rows that lie far from the others stay, because the rule ignores them anyway, and without
    them it would ignore honest rows instead. As many rows stay as the rule needs, at least 2b̂ + 1:
    exclusion yields, the guarantee does not.

    Args:
        updates: The matrix of updates (n̂, d), without statistics.
        rows: The rows that can be used.
        clients: The client of each row of the matrix (n̂,).
        evidence: The evidence of the rounds before.
        rule: The rule that will aggregate the rows.
        tolerated: b̂.
    """
    room = rows.size - fewest_rows(rule, rows.size, tolerated)
    if room <= 0:
        return rows, {}
    facts = kernels.facts(updates, updates[rows[0]], rows=rows)
    groups = copy_groups(updates, rows, facts)
    reasons = copies_of_others([clients[rows[group]] for group in groups])
    reasons |= {
        client: f"flagged since round {evidence.flagged[client]}"
        for client in flagged_clients(evidence, clients[rows])
        if client not in reasons
    }
    if reasons:
        suspect = np.isin(clients[rows], list(reasons))
        suspect[[place for group in groups for place in group]] = True  # also the one that stays
        far = clients[rows[suspect & far_rows(updates, rows, facts.squared, suspect)]]
        reasons = {client: reason for client, reason in reasons.items() if client not in far}
    left_out = dict(list(reasons.items())[:room])
    kept = rows[~np.isin(clients[rows], list(left_out))]
    return kept, left_out


def far_rows(
    updates: Tensor, rows: Ids, squared_norms: Floats, suspect: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """Which rows are further from the center of the others than all of those are.

    The center is the mean of the rows that are not suspect. Long ones are shortened to the median
    length, so that a few rows cannot move it far.
    """
    others = ~suspect
    if not others.any():
        return np.zeros(rows.size, dtype=bool)
    lengths = np.sqrt(squared_norms)
    usual = np.median(lengths[others])
    shortened = np.minimum(1.0, usual / np.maximum(lengths, np.finfo(float).tiny))
    center, _ = kernels.combine(updates, shortened * others / others.sum(), rows=rows)
    gaps = kernels.facts(updates, center, rows=rows).gaps
    far: NDArray[np.bool_] = gaps > gaps[others].max()
    return far


def fewest_rows(rule: Rule, rows: int, tolerated: int) -> int:
    """How many of the rows the rule needs to tolerate b̂ Byzantine ones."""
    for fewer in range(2 * tolerated + 1, rows):
        with suppress(ValueError):
            rule.kappa(fewer, tolerated)
            return fewer
    return rows


def copies_of_others(groups: Sequence[Ids]) -> dict[int, str]:
    """All but the first client of each group of copies, with the reason."""
    return {
        int(client): f"a copy of client {group.min()}"
        for group in groups
        for client in np.sort(group)[1:]
    }


def flagged_clients(evidence: Evidence, clients: Ids) -> list[int]:
    """The flagged ones among these clients, those whose slope is furthest from the usual first."""
    known = clients[clients < evidence.clients]
    flagged = known[evidence.flagged[known] >= 0]
    signal, agreement = evidence.total[1, flagged], evidence.total[2, flagged]
    slopes = agreement / np.maximum(signal, np.finfo(float).tiny)
    extreme = -np.abs(slopes - usual_slope(evidence))
    order: list[int] = flagged[np.lexsort((flagged, extreme))].tolist()
    return order


def usual_slope(evidence: Evidence) -> float:
    """The median slope of the clients that are not flagged; 1 if there is none."""
    signal, agreement = evidence.total[1:3, evidence.flagged < 0]
    slopes = agreement[signal > 0] / signal[signal > 0]
    return float(np.median(slopes)) if slopes.size else 1.0
