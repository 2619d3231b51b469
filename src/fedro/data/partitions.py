"""Partitions: which client gets which examples, and which examples are for testing."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np

from fedro.common.checks import count, number
from fedro.common.registry import Table
from fedro.common.streams import stream
from fedro.common.text import counted
from fedro.data.federation import Array, ExampleRows, Federation, LazyExamples, user_code_of

Partition = Callable[..., Federation]  # (federation, clients, seed, *, options)
PARTITIONS: Table[Partition] = Table("partition")
MAX_DRAWS = 100  # of shares that leave some client without an example


def register(function: Partition) -> Partition:
    """Put a function into the table of partitions under its own name."""
    PARTITIONS[function.__name__] = function
    return function


@register
def owner(federation: Federation, clients: int, seed: int) -> Federation:
    """Every sample stays with its owner; the first clients are taken.

    Args:
        federation: The federation of all owners.
        clients: How many of them to take.
        seed: Not used.
    """
    return federation.first(clients)


@register
def iid(federation: Federation, clients: int, seed: int) -> Federation:
    """All samples are shuffled and cut into equal parts.

    Args:
        federation: The examples of all its clients are pooled.
        clients: The number of parts.
        seed: Decides the order.
    """
    train, test = _pools(federation, clients)
    parts = [
        np.array_split(stream(seed, "partition", which).permutation(len(pool)), clients)
        for which, pool in enumerate((train, test))
    ]
    return _distributed(federation, train, test, *parts)


@register
def dirichlet(federation: Federation, clients: int, seed: int, *, alpha: float) -> Federation:
    """Each class is distributed in shares drawn from Dirichlet(α).

    The test examples of a class are distributed in the same shares as its training examples.

    Args:
        federation: The examples of all its clients are pooled.
        clients: The number of clients.
        seed: Decides the shares and the order.
        alpha: More than 0 and at most 1e6; the smaller it is, the fewer classes has a client.

    Raises:
        ValueError: In every one of many draws some client got no example, or there are no classes.
    """
    wanted = "more than 0 and at most 1e6 (for more, iid is the same)"
    alpha = number("alpha", alpha, wanted, lambda value: 0 < value <= 1e6)
    train, test = _pools(federation, clients, needs_classes_for="dirichlet")
    for attempt in range(MAX_DRAWS):
        rng = stream(seed, "partition", attempt)
        shares = rng.dirichlet(np.full(clients, alpha), size=federation.classes)
        client_of_row = _assign_by_shares(train.labels(), shares, rng)
        if len(np.unique(client_of_row)) == clients:
            parts = group_rows(client_of_row, clients)
            return _with_matching_tests(federation, train, test, parts, rng)
    raise ValueError(
        f"dirichlet(alpha={alpha:g}) left some of {clients} clients without a sample in each of "
        f"{MAX_DRAWS} draws: take a larger alpha, or fewer clients"
    )


@register
def shards(federation: Federation, clients: int, seed: int, *, per_client: int = 2) -> Federation:
    """All samples are sorted by label and cut into equal shards; each client gets a few at random.

    Args:
        federation: The examples of all its clients are pooled.
        clients: The number of clients.
        seed: Decides the order.
        per_client: The number of shards that each client gets.

    Raises:
        ValueError: There are fewer training examples than shards, or there are no classes.
    """
    pieces = clients * count("per_client", per_client, 1)
    train, test = _pools(federation, clients, needs_classes_for="shards")
    if pieces > len(train):
        raise ValueError(
            f"shards(per_client={per_client}) for {clients} clients needs {pieces} training "
            f"samples and {federation.name} has {len(train)}: take fewer clients or shards"
        )
    rng = stream(seed, "partition")
    mixed = rng.permutation(len(train))
    by_label = mixed[np.argsort(train.labels()[mixed], kind="stable")]
    cut = np.array_split(by_label, pieces)
    shards_of_clients = rng.permutation(pieces).reshape(clients, per_client)
    parts = [np.concatenate([cut[shard] for shard in own]) for own in shards_of_clients]
    return _with_matching_tests(federation, train, test, parts, rng)


def split_train_test(
    samples: int, train_share: float, seed: int, *keys: int
) -> tuple[Array, Array]:
    """Draw ⌊train_share·samples⌋ rows for training, at least one; the others are for testing."""
    train = max(1, int(Fraction(str(train_share)) * samples)) if samples else 0
    order = stream(seed, "split", *keys).permutation(samples)
    return np.sort(order[:train]), np.sort(order[train:])


def group_rows(group_of_row: Array, number: int) -> list[Array]:
    """List the rows of each of a number of groups."""
    order = np.argsort(group_of_row, kind="stable")
    return np.split(order, np.cumsum(np.bincount(group_of_row, minlength=number))[:-1])


def _pools(
    federation: Federation, clients: int, needs_classes_for: str = ""
) -> tuple[ExampleRows, ExampleRows]:
    """Pool the training and the test examples of all clients."""
    if needs_classes_for and not federation.classes:
        raise ValueError(
            f"{needs_classes_for} needs classes and {federation.name} has none (regression): "
            "choose owner or iid"
        )
    train, test = (_pool(parts) for parts in zip(*federation.splits, strict=True))
    if clients > len(train):
        raise ValueError(
            f"{federation.name} has {counted(len(train), 'training sample')}, too few "
            f"for {clients} clients: ask for at most {len(train)}"
        )
    return train, test


def _pool(parts: Sequence[LazyExamples]) -> ExampleRows:
    """Join the clients' rows, without a copy if they lie in the same arrays."""
    rows = [part for part in parts if isinstance(part, ExampleRows)]
    if len(rows) == len(parts) and all(
        part.x is rows[0].x and part.y is rows[0].y for part in rows
    ):
        return ExampleRows(rows[0].x, rows[0].y, np.concatenate([part.index for part in rows]))
    x, y = map(np.concatenate, zip(*map(_arrays, parts), strict=True))
    return ExampleRows(x, y, np.arange(len(x)))


def _arrays(part: LazyExamples) -> tuple[Array, Array]:
    with user_code_of(part):
        return part.arrays()


def _assign_by_shares(labels: Array, shares: Array, rng: np.random.Generator) -> Array:
    """Choose a client for each row: of m rows of class c, client i gets m·shares[c, i] ± 1.

    The line from 0 to 1 is cut into an interval for each client, as long as its share. Each row is
    a point on it, at distances of 1/m from a random start. The order of the clients differs between
    classes, so that roundings do not favor anyone.
    """
    clients = shares.shape[1]
    client_of_row = np.empty(len(labels), dtype=np.int64)
    for rows, share in zip(group_rows(labels, len(shares)), shares, strict=True):
        order = rng.permutation(clients)
        edges = np.cumsum(share[order])
        points = (np.arange(len(rows)) + rng.random()) * (edges[-1] / max(len(rows), 1))
        place = np.searchsorted(edges, points, side="right")
        client_of_row[rng.permutation(rows)] = order[np.minimum(place, clients - 1)]
    return client_of_row


def _with_matching_tests(
    federation: Federation,
    train: ExampleRows,
    test: ExampleRows,
    parts: Sequence[Array],
    rng: np.random.Generator,
) -> Federation:
    """Distribute the test rows in the shares in which each class of training rows was."""
    labels = train.labels()
    counts = np.stack([np.bincount(labels[rows], minlength=federation.classes) for rows in parts])
    total = counts.sum(0)
    shares = np.where(total, counts, counts.sum(1, keepdims=True)).T  # no such class: by size
    test_parts = group_rows(_assign_by_shares(test.labels(), shares, rng), len(parts))
    return _distributed(federation, train, test, parts, test_parts)


def _distributed(
    federation: Federation,
    train: ExampleRows,
    test: ExampleRows,
    train_parts: Sequence[Array],
    test_parts: Sequence[Array],
) -> Federation:
    splits = [
        (replace(train, index=np.sort(train.index[a])), replace(test, index=np.sort(test.index[b])))
        for a, b in zip(train_parts, test_parts, strict=True)
    ]
    return replace(federation, splits=splits, owners=(), problem=None)
