"""Who is suspect at the end of a run: the decisions of `fedro.server.suspects`, for people.

Everything follows from the lines of rounds.jsonl, so the rate of false discoveries can be changed
after the run.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fedro.planning import Outlook
from fedro.server.evidence import SUMS, Evidence, RowFacts, next_look
from fedro.server.scores import Ids
from fedro.server.suspects import (
    DEFAULT_FDR,
    MIN_CLIENTS,
    MIN_DRAWS,
    Bools,
    Slopes,
    Verdict,
    by_copies,
    certainly_byzantine,
    judge,
    judged,
    look_at,
    neighbors,
)

DIRECTION, COPIES = "direction", "copies"  # why a client is suspect
FIRST_LOOK = next_look(0)
MAX_CLIENT = 10**7  # the sums have room for all clients up to the largest number


@dataclass(frozen=True, kw_only=True)
class ClientEvidence:
    """What a run shows of one client.

    Attributes:
        client: The number of the client in rounds.jsonl.
        node: The id of its Flower node as text; None in a simulation.
        draws: In how many rounds its update was used as evidence.
        slope: How much its updates agree with the aggregate, where the others agree: about 1 for
            most clients, 0 for noise, negative against the others. None if nothing is known.
        z: The distance of the slope from the median, in units of the scale of honest clients;
            None if the client cannot be judged.
        recent_slope: The slope over the last rounds only.
        recent_z: Its distance from the median.
        copies: The share of its draws in which somebody else sent the same update.
        partners: The clients that ever sent the same update as this one.
        distance: Its mean place by distance from the aggregate: 0 is the nearest, 1 the farthest.
        norm: Its mean place by the length of the update: 0 is the shortest, 1 the longest.
        flagged: Whether the client is suspect.
        why: The reasons: "direction", "copies", both, or none.
        since: The round since which it is suspect without a break, counted from 0; or None.
        byzantine: In a simulation, whether the client is Byzantine; else None.

    Example:
        >>> import fedro
        >>> report = fedro.suspects(list(fedro.run(fedro.Experiment(clients=12, rounds=3))))
        >>> {client.flagged for client in report.clients}
        {False}
    """

    client: int
    node: str | None = None
    draws: int
    slope: float | None
    z: float | None
    recent_slope: float | None
    recent_z: float | None
    copies: float
    partners: list[int]
    distance: float
    norm: float
    flagged: bool
    why: list[str]
    since: int | None
    byzantine: bool | None = None

    @property
    def extreme(self) -> float:
        """The larger of the two |z|; 0 if the client cannot be judged."""
        return max(abs(self.z or 0.0), abs(self.recent_z or 0.0))

    @property
    def telling(self) -> tuple[float | None, float | None]:
        """The slope and z over all rounds or over the last ones, whichever is more extreme."""
        if abs(self.recent_z or 0.0) > abs(self.z or 0.0):
            return self.recent_slope, self.recent_z
        return self.slope, self.z


@dataclass(frozen=True, kw_only=True)
class SuspectReport:
    """Who is suspect in a run, and how many clients must be Byzantine.

    `fedro.suspects` makes it. `print(report)` shows a table.

    Attributes:
        clients: What the run shows of each client that was drawn: suspects first, then the others,
            the most extreme first.
        at_least: How many clients are Byzantine at least, with a confidence of 95%.
        fdr: The rate of false discoveries.
        rounds: The number of rounds with evidence. Void rounds have none.
        looks: The number of decisions, with the last one.
        groups: Clients that are all copies of each other. At most one of each group is honest.
        enough: Whether there is enough evidence to judge directions. If not, nobody was found not
            to be suspect: only copies were looked for.
        reason: What is missing; None if there is enough.
        median: The median slope of the clients that are not flagged, or None.
        scale: The scale of their slopes, or None.
        byzantine: In a simulation, the Byzantine clients that were drawn; else None.
        planned: b, the number of Byzantine clients that the run was planned for, if known.
        outlook: What remains of the plan's guarantee if `at_least` is more than planned; else None.

    Example:
        >>> import fedro
        >>> fedro.suspects(list(fedro.run(fedro.Experiment(rounds=2)))).reason
        '2 rounds with evidence; the first decision is after 10'
    """

    clients: list[ClientEvidence]
    at_least: int
    fdr: float
    rounds: int
    looks: int
    groups: list[list[int]]
    enough: bool
    reason: str | None
    median: float | None
    scale: float | None
    byzantine: list[int] | None = None
    planned: int | None = None
    outlook: Outlook | None = None

    @property
    def suspects(self) -> list[int]:
        """The suspects, sorted by their numbers."""
        return sorted(client.client for client in self.clients if client.flagged)

    @property
    def precision(self) -> float | None:
        """The share of the suspects that are Byzantine; None if unknown or without suspects."""
        if self.byzantine is None or not self.suspects:
            return None
        return self._hits / len(self.suspects)

    @property
    def recall(self) -> float | None:
        """The share of the drawn Byzantine clients that are suspect; None if there are none."""
        return self._hits / len(self.byzantine) if self.byzantine else None

    @property
    def _hits(self) -> int:
        return len(set(self.suspects) & set(self.byzantine or ()))

    def as_dict(self) -> dict[str, Any]:
        """Everything as plain values for JSON."""
        simulated = {"precision": self.precision, "recall": self.recall}
        return {
            "suspects": self.suspects,
            **{
                key: value for key, value in vars(self).items() if key not in ("clients", "outlook")
            },
            "outlook": None if self.outlook is None else vars(self.outlook),
            **(simulated if self.byzantine is not None else {}),
            "clients": [vars(client) for client in self.clients],
        }

    def table(self, unflagged: int | None = None) -> list[list[str]]:
        """The clients as rows of text, the first of which is the header.

        Args:
            unflagged: How many clients that are not suspect to show, the most extreme first; by
                default all.
        """
        others = [client for client in self.clients if not client.flagged][:unflagged]
        shown = [*(client for client in self.clients if client.flagged), *others]
        columns = ["client", "draws", "slope", "z", "copies", "suspect for", "since"]
        rows = [columns, *(_row(client) for client in shown)]
        if any(client.node is not None for client in shown):
            nodes = ["node", *(client.node or "" for client in shown)]
            rows = [[row[0], node, *row[1:]] for row, node in zip(rows, nodes, strict=True)]
        if self.byzantine is not None:
            truths = ["truth", *("Byzantine" if c.byzantine else "honest" for c in shown)]
            rows = [[*row, truth] for row, truth in zip(rows, truths, strict=True)]
        return rows

    def __str__(self) -> str:
        """The table of all clients as text."""
        rows = self.table()
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return "\n".join(
            "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
            for row in rows
        )


def _row(client: ClientEvidence) -> list[str]:
    """A client as a row of the table. The more extreme of the two slopes is shown."""
    slope, z = client.telling
    return [
        str(client.client),
        str(client.draws),
        "" if slope is None else f"{slope:.2f}",
        "" if z is None else f"{z:+.1f}",
        f"{client.copies:.0%}" if client.copies else "",
        ", ".join(client.why),
        "" if client.since is None else str(client.since),
    ]


class Replay(NamedTuple):
    """The evidence of all rounds.

    Attributes:
        before: The evidence before the last decision.
        verdict: The last decision.
        after: The evidence after it.
        copying: The round since which a client is flagged for copies, or −1 (clients,).
    """

    before: Evidence
    verdict: Verdict
    after: Evidence
    copying: Ids


def replay(lines: Iterable[Mapping[str, Any]], fdr: float) -> Replay:
    """Repeat the decisions of a run, and make a last one after its end.

    The last decision has the level of the next look, or is a look itself if one was due.
    """
    evidence = after = Evidence()
    copying, last = np.zeros(0, dtype=np.int64), 0
    for line in lines:
        if line.get("evidence") is None:
            continue
        last = int(line["round"])
        evidence = after.add(checked_facts(line["evidence"], last))
        after = look_at(evidence, last, fdr)
        copying = np.append(copying, np.full(evidence.clients - copying.size, -1))
        if evidence.pairs.size:
            now = by_copies(evidence)
            copying = np.where(now, np.where(copying >= 0, copying, last), -1)
    verdict = judge(evidence, fdr)
    if evidence.rounds < FIRST_LOOK:
        nobody = np.zeros_like(verdict.by_direction)
        certain = certainly_byzantine(evidence.pairs, nobody)
        verdict = verdict._replace(by_direction=nobody, at_least=certain)
    return Replay(evidence, verdict, evidence.after_look(verdict.by_direction, last), copying)


def checked_facts(values: Mapping[str, Any], round: int) -> RowFacts:
    """The facts of a line, or an error if somebody has changed them."""
    try:
        facts = RowFacts.from_dict(values)
        clients, copies = facts.clients, [client for group in facts.copies for client in group]
        sizes = {part.shape for part in facts[:4]}
        valid = sizes == {(np.unique(clients).size,)} and set(copies) <= set(clients.tolist())
        valid &= bool(np.isfinite(facts.cosine).all() and (clients >= 0).all())
        valid &= bool((clients <= MAX_CLIENT).all())
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise ValueError(
            f"round {round} of rounds.jsonl has no valid evidence: {error!r}"
        ) from None
    if not valid:
        raise ValueError(f"round {round} of rounds.jsonl has no valid evidence: put it back")
    return facts


def report_suspects(
    lines: Iterable[Mapping[str, Any]],
    fdr: float = DEFAULT_FDR,
    *,
    nodes: Mapping[int, str] | None = None,
    planned: int | None = None,
) -> SuspectReport:
    """Report who is suspect after these rounds.

    Args:
        lines: The lines of rounds.jsonl.
        fdr: The rate of false discoveries.
        nodes: In a deployment, the id of the node behind each client.
        planned: b, the number of Byzantine clients that the run was planned for.

    Raises:
        ValueError: The evidence of a line is damaged.
    """
    lines = list(lines)
    result = replay(lines, fdr)
    evidence, verdict = result.before, result.verdict
    truth = known_byzantine(lines)
    reason = not_enough(evidence, verdict.total, len(lines))
    known = not math.isnan(verdict.total.median)
    return SuspectReport(
        clients=_clients(result, nodes or {}, truth),
        at_least=verdict.at_least,
        fdr=fdr,
        rounds=evidence.rounds,
        looks=result.after.looks if evidence.rounds >= FIRST_LOOK else 0,
        groups=groups_of_copies(evidence.pairs),
        enough=reason is None,
        reason=reason,
        median=verdict.total.median if known else None,
        scale=verdict.total.scale if known else None,
        byzantine=truth,
        planned=planned,
    )


def known_byzantine(lines: Iterable[Mapping[str, Any]]) -> list[int] | None:
    """The Byzantine clients that were drawn, which only a simulation knows."""
    drawn: set[int] = set()
    for line in lines:
        if line.get("byzantine") is None:
            return None
        drawn |= set(line["byzantine"])
    return sorted(drawn)


def not_enough(evidence: Evidence, slopes: Slopes, rounds: int) -> str | None:
    """Why directions cannot be judged, or None."""
    if not rounds:
        return "no round is complete"
    if not evidence.rounds:
        return f"all {rounds} rounds were void, so there is no evidence"
    if evidence.rounds < FIRST_LOOK:
        return f"{evidence.rounds} rounds with evidence; the first decision is after {FIRST_LOOK}"
    drawn_often = int((evidence.total[0] >= MIN_DRAWS).sum())
    if drawn_often < MIN_CLIENTS:
        return (
            f"only {drawn_often} clients were drawn {MIN_DRAWS} times or more; a comparison needs "
            f"{MIN_CLIENTS}"
        )
    if not slopes.z.any():
        return (
            "the updates agree too little: after so few rounds, the differences between clients "
            "are smaller than the noise"
        )
    return None


def groups_of_copies(pairs: Ids) -> list[list[int]]:
    """Disjoint groups of clients that are all copies of each other, the largest first."""
    linked = neighbors(pairs)
    free, groups = set(linked), []
    while free:
        group: set[int] = set()
        for client in sorted(free, key=lambda c: (-len(linked[c] & free), c)):
            if group <= linked[client]:
                group.add(client)
        free -= group
        if len(group) > 1:
            groups.append(sorted(group))
    return sorted(groups, key=lambda group: (-len(group), group))


def _clients(
    result: Replay, nodes: Mapping[int, str], truth: list[int] | None
) -> list[ClientEvidence]:
    """What is known of each client that was drawn, suspects and extreme ones first."""
    evidence, verdict = result.before, result.verdict
    linked, byzantine = neighbors(evidence.pairs), None if truth is None else set(truth)
    can_judge = verdict.total.z.any() * judged(evidence.total)
    can_judge_recent = verdict.recent.z.any() * judged(evidence.recent)
    clients = []
    for client in np.flatnonzero(evidence.total[0]).tolist():
        sums = dict(zip(SUMS, evidence.total[:, client].tolist(), strict=True))
        slope, z = _slope(verdict.total, can_judge, client)
        recent_slope, recent_z = _slope(verdict.recent, can_judge_recent, client)
        reasons = {
            DIRECTION: int(result.after.flagged[client]),
            COPIES: int(result.copying[client]),
        }
        since = {why: round for why, round in reasons.items() if round >= 0}
        clients.append(
            ClientEvidence(
                client=client,
                node=nodes.get(client),
                draws=int(sums["draws"]),
                slope=slope,
                z=z,
                recent_slope=recent_slope,
                recent_z=recent_z,
                copies=sums["copied"] / sums["draws"],
                partners=sorted(linked.get(client, ())),
                distance=sums["distance"] / sums["draws"],
                norm=sums["norm"] / sums["draws"],
                flagged=bool(since),
                why=list(since),
                since=min(since.values(), default=None),
                byzantine=None if byzantine is None else client in byzantine,
            )
        )
    return sorted(clients, key=lambda c: (not c.flagged, -c.extreme, -c.copies, c.client))


def _slope(slopes: Slopes, can_judge: Bools, client: int) -> tuple[float | None, float | None]:
    """The slope of a client and its z, where they are known."""
    slope = float(slopes.slope[client])
    z = float(slopes.z[client]) if can_judge[client] else None
    return (None if math.isnan(slope) else slope), z
