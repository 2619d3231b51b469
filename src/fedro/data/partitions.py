"""Who gets which samples: owner, iid, dirichlet, shards."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from fedro.common.checks import count, number
from fedro.common.registry import Table
from fedro.common.streams import stream
from fedro.common.text import counted
from fedro.data.federation import Array, Federation, Part, Rows, groups

Partition = Callable[..., Federation]  # (federation, clients, seed, *, options)
PARTITIONS: Table[Partition] = Table("partition")
REDRAWS = 100


def register(function: Partition) -> Partition:
    """Put a function into the table under its own name."""
    PARTITIONS[function.__name__] = function
    return function


@register
def owner(federation: Federation, clients: int, seed: int) -> Federation:
    """Every sample stays with whom it belongs to; the first clients are taken."""
    return federation.first(clients)


@register
def iid(federation: Federation, clients: int, seed: int) -> Federation:
    """Shuffled and cut into equal parts."""
    train, test = _pools(federation, clients)
    return _dealt(federation, train, test, *(
        np.array_split(stream(seed, "partition", which).permutation(len(pool)), clients)
        for which, pool in enumerate((train, test))
    ))  # fmt: skip


@register
def dirichlet(federation: Federation, clients: int, seed: int, *, alpha: float) -> Federation:
    """Each class is dealt in shares drawn from Dirichlet(α): small α, few classes per client."""
    wanted = "more than 0 and at most 1e6 (for more, iid is the same)"
    alpha = number("alpha", alpha, wanted, lambda value: 0 < value <= 1e6)
    train, test = _pools(federation, clients, by_class="dirichlet")
    for attempt in range(REDRAWS):
        rng = stream(seed, "partition", attempt)
        shares = rng.dirichlet(np.full(clients, alpha), size=federation.classes)
        dealt = _by_shares(train.labels(), shares, rng)
        if len(np.unique(dealt)) == clients:
            return _followed(federation, train, test, groups(dealt, clients), rng)
    raise ValueError(
        f"dirichlet(alpha={alpha:g}) left some of {clients} clients without a sample in each of "
        f"{REDRAWS} draws: take a larger alpha, or fewer clients"
    )


@register
def shards(federation: Federation, clients: int, seed: int, *, per_client: int = 2) -> Federation:
    """Sorted by label, cut into clients·per_client equal shards, and these dealt at random."""
    pieces = clients * count("per_client", per_client, 1)
    train, test = _pools(federation, clients, by_class="shards")
    if pieces > len(train):
        raise ValueError(
            f"shards(per_client={per_client}) for {clients} clients needs {pieces} training "
            f"samples and {federation.name} has {len(train)}: take fewer clients or shards"
        )
    rng = stream(seed, "partition")
    mixed = rng.permutation(len(train))
    by_label = mixed[np.argsort(train.labels()[mixed], kind="stable")]
    cut = np.array_split(by_label, pieces)
    hands = rng.permutation(pieces).reshape(clients, per_client)
    dealt = [np.concatenate([cut[piece] for piece in hand]) for hand in hands]
    return _followed(federation, train, test, dealt, rng)


def _pools(federation: Federation, clients: int, by_class: str = "") -> tuple[Rows, Rows]:
    if by_class and not federation.classes:
        raise ValueError(
            f"{by_class} deals by class and {federation.name} has none (regression): "
            "choose owner or iid"
        )
    train, test = (_pool(parts) for parts in zip(*federation.parts, strict=True))
    if clients > len(train):
        raise ValueError(
            f"{federation.name} has {counted(len(train), 'training sample')}, too few "
            f"for {clients} clients: ask for at most {len(train)}"
        )
    return train, test


def _pool(parts: Sequence[Part]) -> Rows:
    """All the clients' rows; a copy only where they do not lie in the same arrays."""
    rows = [part for part in parts if isinstance(part, Rows)]
    if len(rows) == len(parts) and all(
        part.x is rows[0].x and part.y is rows[0].y for part in rows
    ):
        return Rows(rows[0].x, rows[0].y, np.concatenate([part.index for part in rows]))
    x, y = map(np.concatenate, zip(*(part.arrays() for part in parts), strict=True))
    return Rows(x, y, np.arange(len(x)))


def _by_shares(labels: Array, shares: Array, rng: np.random.Generator) -> Array:
    """A client for each row: of m rows of class c, client i gets m·shares[c, i], give or take one.

    Points a distance 1/m apart, from a random start, fall into the clients' intervals; the clients
    are in another order for each class, so that roundings do not favor anyone.
    """
    clients = shares.shape[1]
    dealt = np.empty(len(labels), dtype=np.int64)
    for rows, share in zip(groups(labels, len(shares)), shares, strict=True):
        order = rng.permutation(clients)
        edges = np.cumsum(share[order])
        points = (np.arange(len(rows)) + rng.random()) * (edges[-1] / max(len(rows), 1))
        place = np.searchsorted(edges, points, side="right")
        dealt[rng.permutation(rows)] = order[np.minimum(place, clients - 1)]
    return dealt


def _followed(
    federation: Federation,
    train: Rows,
    test: Rows,
    dealt: Sequence[Array],
    rng: np.random.Generator,
) -> Federation:
    """Deal the test rows in the shares in which each class of training rows was dealt."""
    labels = train.labels()
    counts = np.stack([np.bincount(labels[rows], minlength=federation.classes) for rows in dealt])
    total = counts.sum(0)
    shares = np.where(total, counts, counts.sum(1, keepdims=True)).T  # no such class: by size
    tests = groups(_by_shares(test.labels(), shares, rng), len(dealt))
    return _dealt(federation, train, test, dealt, tests)


def _dealt(
    federation: Federation, train: Rows, test: Rows, trains: Sequence[Array], tests: Sequence[Array]
) -> Federation:
    parts = [
        (replace(train, index=np.sort(train.index[a])), replace(test, index=np.sort(test.index[b])))
        for a, b in zip(trains, tests, strict=True)
    ]
    return replace(federation, parts=parts, owners=(), problem=None)
