"""Evidence about clients: what a round shows of each row, and its sums over the rounds.

Most of what Byzantine clients do shows over many rounds, though not in a single one: their updates
point against what the others agree on, or they send the same update as somebody else. For each row
the server takes the cosine with the aggregate. The median cosine c of a round says how much the
clients agree in it. A client's *slope* is the regression of its cosines on c: about 1 for a client
that agrees as the others do, 0 for one that sends noise, negative for one that works against them,
and well above 1 for one that imitates the average. Rounds in which clients agree more count more.

Two clients with data of their own never send the same update, so of two copies one is a lie.

`fedro.server.suspects` decides from these sums who is suspect.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedro import kernels
from fedro.server.scores import Ids

Floats = NDArray[np.float64]
COSINE_DECIMALS = 4  # rounded before they are summed, so rounds.jsonl gives the same sums
COPY_TOLERANCE = 1e-6  # of the median squared distance between rows
OTHER_ROWS = 6  # with which candidates for copies are compared
LOOKS = (10, 15, 22, 33, 50, 75)  # decisions are made after so many rounds,
LOOK_INTERVAL = 32  # and then at this interval


class RowFacts(NamedTuple):
    """What one round shows of the clients whose updates arrived.

    Attributes:
        clients: Their ids (m,).
        cosine: The cosine of each update with the aggregate (m,).
        distance: The place of each update by its distance from the aggregate; 0 is the nearest.
        norm: The place of each update by its length; 0 is the shortest.
        copies: Groups of clients that sent the same update.
    """

    clients: Ids
    cosine: Floats
    distance: Ids
    norm: Ids
    copies: list[list[int]]

    def as_dict(self) -> dict[str, Any]:
        """The facts for a line of rounds.jsonl."""
        return {
            "clients": self.clients.tolist(),
            "cosine": self.cosine.tolist(),
            "distance": self.distance.tolist(),
            "norm": self.norm.tolist(),
            "copies": self.copies,
        }

    @classmethod
    def from_dict(cls, line: Mapping[str, Any]) -> "RowFacts":
        """The facts that `as_dict` has written."""
        clients, distance, norm = (
            np.array(line[key], dtype=np.int64) for key in ("clients", "distance", "norm")
        )
        return cls(clients, np.array(line["cosine"], float), distance, norm, line["copies"])


def observe(updates: Tensor, rows: Ids, aggregate: Tensor, clients: Ids) -> RowFacts:
    """What this round shows of the rows, with one pass over them.

    Args:
        updates: The matrix of updates (n̂, d).
        rows: The rows that arrived and are finite.
        aggregate: The aggregate (d,).
        clients: The client of each row of the matrix (n̂,).
    """
    facts = kernels.facts(updates, aggregate, rows=rows)
    length = float(torch.linalg.vector_norm(aggregate, dtype=torch.float64))
    norms = np.sqrt(facts.squared)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        cosine = facts.dots / (norms * length)
    cosine = np.clip(np.where(np.isfinite(cosine), cosine, 0.0), -1, 1)
    groups = copy_groups(updates, rows, facts.squared)
    return RowFacts(
        clients[rows],
        np.round(cosine, COSINE_DECIMALS) + 0.0,  # no minus zero
        places(facts.gaps),
        places(facts.squared),
        [sorted(clients[rows[group]].tolist()) for group in groups],
    )


def places(values: Floats) -> Ids:
    """The place of each value among all, from 0; equal values share the lowest place."""
    return np.searchsorted(np.sort(values), values).astype(np.int64)


def copy_groups(updates: Tensor, rows: Ids, squared_norms: Floats) -> list[Ids]:
    """Groups of rows that are copies of each other, as places in `rows`.

    Copies have the same length, so only rows of nearly equal length are compared, and with them
    some others, to know how far apart rows are.
    """
    candidates = similar(np.sqrt(squared_norms))
    if not candidates.size:
        return []
    others = np.setdiff1d(np.arange(rows.size), candidates)[:OTHER_ROWS]
    compared = np.concatenate([candidates, others])
    squared = kernels.distances(updates, rows=rows[compared]).value
    between = squared[np.triu_indices(compared.size, 1)]
    if others.size:
        between = squared[candidates.size :].ravel()
        between = between[between > 0]
    limit = COPY_TOLERANCE * float(np.median(between)) if between.size else 0.0
    close = squared[: candidates.size, : candidates.size] <= limit
    return [candidates[group] for group in components(close) if limit > 0 and group.size > 1]


def similar(norms: Floats) -> Ids:
    """The rows whose length is nearly that of another row. Rows of zeros are similar too."""
    tolerance = 2 * np.sqrt(COPY_TOLERANCE) * float(np.median(norms))
    order = np.argsort(norms, kind="stable")
    near = np.diff(norms[order]) <= tolerance
    return np.sort(order[np.append(near, False) | np.append(False, near)])


def components(close: NDArray[np.bool_]) -> list[Ids]:
    """Groups of items that are linked by a symmetric relation, each as sorted places."""
    label = np.arange(len(close))
    for first, second in zip(*np.nonzero(close), strict=True):
        if label[first] != label[second]:
            label[label == max(label[first], label[second])] = min(label[first], label[second])
    return [np.flatnonzero(label == name) for name in np.unique(label)]


SUMS = ("draws", "signal", "agreement", "residual", "distance", "norm", "copied")


@dataclass(frozen=True)
class Evidence:
    """The sums of all rounds, for each client. Updating it returns a new object.

    Attributes:
        rounds: The number of rounds that were observed.
        looks: How many decisions were made.
        total: One row for each of `SUMS` (7, clients): the number of draws, Σc², Σc·cosine,
            Σ(cosine − c)², the sums of the places by distance and by length as shares of the rows,
            and in how many rounds somebody sent the same update.
        recent: The same since the last look but one, so that old good behavior is forgotten.
        current: The same since the last look.
        pairs: Pairs of clients that sent the same update, and how often (p, 3).
        flagged: The round since which a client is flagged for its direction, or −1 (clients,).
    """

    rounds: int = 0
    looks: int = 0
    total: Floats = field(default_factory=lambda: np.zeros((len(SUMS), 0)))
    recent: Floats = field(default_factory=lambda: np.zeros((len(SUMS), 0)))
    current: Floats = field(default_factory=lambda: np.zeros((len(SUMS), 0)))
    pairs: Ids = field(default_factory=lambda: np.zeros((0, 3), dtype=np.int64))
    flagged: Ids = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    @property
    def clients(self) -> int:
        """The number of clients that the sums have room for."""
        return int(self.total.shape[1])

    @property
    def is_look(self) -> bool:
        """Whether it is time for a decision."""
        return self.rounds >= next_look(self.looks)

    def add(self, facts: RowFacts) -> "Evidence":
        """The evidence with one more round."""
        more = np.zeros((len(SUMS), facts.clients.size))
        agreed = max(0.0, float(np.median(facts.cosine))) if facts.clients.size else 0.0
        rows = max(1, facts.clients.size)
        in_groups = {client for group in facts.copies for client in group}
        more[0] = 1.0
        more[1] = agreed**2
        more[2] = agreed * facts.cosine
        more[3] = (facts.cosine - agreed) ** 2
        more[4], more[5] = (facts.distance + 0.5) / rows, (facts.norm + 0.5) / rows
        more[6] = [client in in_groups for client in facts.clients.tolist()]
        room = max(self.clients, int(facts.clients.max(initial=-1)) + 1)
        added = np.zeros((len(SUMS), room))
        added[:, facts.clients] = more  # a client has one row in a round
        return replace(
            self,
            rounds=self.rounds + 1,
            total=widened(self.total, room) + added,
            recent=widened(self.recent, room) + added,
            current=widened(self.current, room) + added,
            pairs=with_pairs(self.pairs, facts.copies),
            flagged=np.append(self.flagged, np.full(room - self.clients, -1)).astype(np.int64),
        )

    def after_look(self, flagged: NDArray[np.bool_], round: int) -> "Evidence":
        """The evidence after a decision in this round: who is flagged, and windows moved on."""
        since = np.where(flagged, np.where(self.flagged >= 0, self.flagged, round), -1)
        return replace(
            self,
            looks=self.looks + 1,
            recent=self.current,
            current=np.zeros_like(self.current),
            flagged=since.astype(np.int64),
        )

    def tensors(self) -> dict[str, Tensor]:
        """The evidence as tensors for a checkpoint; `from_tensors` reads them back."""
        if not self.rounds:
            return {}
        counts = np.array([self.rounds, self.looks])
        sums = np.stack([self.total, self.recent, self.current])
        named = {"counts": counts, "sums": sums, "pairs": self.pairs, "flagged": self.flagged}
        return {name: torch.from_numpy(np.ascontiguousarray(a)) for name, a in named.items()}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> "Evidence":
        """The evidence that `tensors` saved, or none."""
        if "counts" not in tensors:
            return cls()
        counts, sums, pairs, flagged = (
            tensors[name].numpy() for name in ("counts", "sums", "pairs", "flagged")
        )
        total, recent, current = sums
        return cls(int(counts[0]), int(counts[1]), total, recent, current, pairs, flagged)


def next_look(looks: int) -> int:
    """After how many rounds the next decision is due, if there were so many before."""
    if looks < len(LOOKS):
        return LOOKS[looks]
    return LOOKS[-1] + LOOK_INTERVAL * (looks + 1 - len(LOOKS))


def widened(sums: Floats, clients: int) -> Floats:
    """The sums with room for more clients."""
    return np.pad(sums, ((0, 0), (0, clients - sums.shape[1])))


def with_pairs(pairs: Ids, groups: Sequence[Sequence[int]]) -> Ids:
    """The pairs with those of these groups counted once more."""
    if not groups:
        return pairs
    counts = {(first, second): times for first, second, times in pairs.tolist()}
    for group in groups:
        for place, first in enumerate(group):
            for second in group[place + 1 :]:
                counts[first, second] = counts.get((first, second), 0) + 1
    return np.array([(*pair, times) for pair, times in sorted(counts.items())], dtype=np.int64)
