"""Partitions: nothing is lost, nothing is dealt twice, and the parts are as skewed as asked."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedro.common.options import Options
from fedro.data import PARTITIONS, Federation, from_clients
from fedro.data.federation import ExampleRows
from fedro.data.partitions import _assign_by_shares, split_train_test

CLIENTS = st.integers(1, 12)
SEEDS = st.integers(0, 2**40)


def pool(train: list[int], test: list[int], classes: int) -> Federation:
    """One client that holds everything; a sample's only feature is its own number."""
    y = np.array([*train, *test], dtype=np.int64)
    x = np.arange(len(y), dtype=np.float32)[:, None]
    first, second = np.split(np.arange(len(y)), [len(train)])
    return Federation(
        "pool", [(ExampleRows(x, y, first), ExampleRows(x, y, second))], classes, scale=1.0
    )


def dealt(federation: Federation, which: str) -> list[float]:
    parts = [pair[which == "test"] for pair in federation.splits]
    return sorted(number for part in parts for number in part.arrays()[0][:, 0].tolist())


@st.composite
def pools(draw: st.DrawFn) -> Federation:
    """Some classes are common, some rare, some are missing in the training or test samples."""
    classes, sizes = draw(st.integers(1, 6)), draw(st.tuples(*[st.integers(40, 80)] * 2))
    rng = np.random.default_rng(draw(SEEDS))
    train, test = (
        rng.choice(classes, size, p=rng.dirichlet([0.5] * classes)).tolist() for size in sizes
    )
    return pool(train, test, classes)


@pytest.mark.parametrize("text", ["iid", "dirichlet", "shards"])
@given(federation=pools(), clients=CLIENTS, seed=SEEDS, scale=st.floats(0.3, 50))
def test_every_sample_is_dealt_exactly_once(
    text: str, federation: Federation, clients: int, seed: int, scale: float
) -> None:
    options = {"dirichlet": {"alpha": scale}, "shards": {"per_client": 1 + int(scale) % 3}}
    given_options = options.get(text, {})
    Options(text, PARTITIONS[text]).check(given_options)
    try:
        result = PARTITIONS[text](federation, clients, seed, **given_options)
    except ValueError as error:
        assert "larger alpha" in str(error)  # noqa: PT017  a few samples, many clients
        return
    assert result.clients == clients
    assert result.sizes.min() >= 1
    for which in ("train", "test"):
        assert dealt(result, which) == dealt(federation, which)
    again = PARTITIONS[text](federation, clients, seed, **given_options)
    assert all(a.index.tolist() == b.index.tolist() for a, b in _indices(result, again))


def _indices(one: Federation, other: Federation) -> list[tuple[ExampleRows, ExampleRows]]:
    pairs = zip(one.splits, other.splits, strict=True)
    return [(a[which], b[which]) for a, b in pairs for which in (0, 1)]  # type: ignore[misc]


@given(pools(), CLIENTS, SEEDS)
def test_iid_parts_are_equal(federation: Federation, clients: int, seed: int) -> None:
    result = PARTITIONS["iid"](federation, clients, seed)
    assert np.ptp(result.sizes) <= 1
    assert np.ptp(result.test_sizes) <= 1


@given(pools(), CLIENTS, SEEDS)
def test_large_alpha_gives_everyone_the_same_of_each_class(
    federation: Federation, clients: int, seed: int
) -> None:
    """The draw's own deviation is about 1e-3 of a share; dealing adds less than one sample."""
    result = PARTITIONS["dirichlet"](federation, clients, seed, alpha=1e6)
    fair = federation.label_counts[0] / clients
    assert np.abs(result.label_counts - fair).max() < 1.5


@pytest.mark.parametrize("alpha", [0.2, 1.0, 5.0])
def test_dirichlet_skews_as_its_density_says(alpha: float) -> None:
    """A share is Beta(α, (n−1)α): its mean square is (α+1)/(n(nα+1))."""
    n, classes, each = 8, 300, 200
    federation = pool([*range(classes)] * each, [0], classes)
    shares = PARTITIONS["dirichlet"](federation, n, 0, alpha=alpha).label_counts / each
    assert np.square(shares).mean() == pytest.approx((alpha + 1) / (n * (n * alpha + 1)), rel=0.06)


def test_small_alpha_leaves_few_classes_each() -> None:
    federation = pool([*range(10)] * 100, [*range(10)] * 20, 10)
    few = PARTITIONS["dirichlet"](federation, 5, 0, alpha=0.05).classes_per_client
    many = PARTITIONS["dirichlet"](federation, 5, 0, alpha=100.0).classes_per_client
    assert few.mean() < 5
    assert many.min() == 10


@given(st.integers(1, 4), CLIENTS, SEEDS)
def test_shards_hold_few_classes(per_client: int, clients: int, seed: int) -> None:
    """A shard no larger than a class touches at most two; one that fits exactly, one."""
    federation = pool([*range(6)] * (8 * clients * per_client), [*range(6)] * 10, 6)
    result = PARTITIONS["shards"](federation, clients, seed, per_client=per_client)
    assert np.ptp(result.sizes) == 0
    shard = result.sizes[0] // per_client
    each = 1 if (8 * clients * per_client) % shard == 0 else 2 + shard // (8 * clients * per_client)
    assert result.classes_per_client.max() <= each * per_client


@pytest.mark.parametrize(("text", "options"), [("dirichlet", {"alpha": 0.1}), ("shards", {})])
@given(federation=pools(), clients=st.integers(1, 4), seed=SEEDS)
def test_test_data_look_like_training_data(
    text: str, options: dict[str, float], federation: Federation, clients: int, seed: int
) -> None:
    """Of a class, a client gets the same share of the test as of the training samples, ± 1."""
    try:
        result = PARTITIONS[text](federation, clients, seed, **options)
    except ValueError as error:
        assert "larger alpha" in str(error)  # noqa: PT017
        return
    test = federation.test(0).y.numpy()
    total = federation.label_counts[0]
    for label in np.unique(test[total[test] > 0]):
        share = result.label_counts[:, label] / total[label]
        got = [int((part.labels() == label).sum()) for _, part in result.splits]
        assert np.abs(share * (test == label).sum() - got).max() < 1 + 1e-9
        assert all(g == 0 for g, s in zip(got, share, strict=True) if s == 0)


def test_roundings_favor_nobody() -> None:
    """20 test samples of each of 50 classes for 100 clients: all get about 10, not some 50."""
    federation = pool([*range(50)] * 100, [*range(50)] * 20, 50)
    sizes = PARTITIONS["dirichlet"](federation, 100, 0, alpha=1e6).test_sizes
    assert sizes.max() <= 25
    assert sizes.min() >= 1
    assert len(set(sizes.tolist())) > 5  # clients do not go together


def test_a_single_sample_falls_to_each_by_its_share() -> None:
    shares = np.tile([3.0, 1.0], (2000, 1))
    client = _assign_by_shares(np.arange(2000), shares, np.random.default_rng(0))
    assert client.mean() == pytest.approx(0.25, abs=0.05)


@pytest.mark.parametrize(
    ("text", "options"), [("iid", {}), ("dirichlet", {"alpha": 1e6}), ("shards", {})]
)
def test_neighbors_in_the_file_are_parted(text: str, options: dict[str, float]) -> None:
    """Samples of one class that lie together, as one owner's do, are dealt to all."""
    result = PARTITIONS[text](pool([0] * 1000, [0] * 1000, 1), 2, 0, **options)
    for pair in result.splits:
        for part in pair:
            assert part.arrays()[0].mean() % 1000 == pytest.approx(500, abs=60)


def test_a_class_that_is_only_in_the_test_samples_is_dealt_by_size() -> None:
    result = PARTITIONS["dirichlet"](pool([0] * 300, [1] * 1000, 2), 3, 0, alpha=1.0)
    assert np.ptp(result.sizes) > 30
    assert np.abs(result.test_sizes / 1000 - result.sizes / 300).max() < 0.01


def test_shards_are_dealt_at_random() -> None:
    result = PARTITIONS["shards"](pool([*range(10)] * 5, [0], 10), 10, 0, per_client=1)
    labels = [int(result.train(i).y[0]) for i in range(10)]
    assert sorted(labels) == list(range(10))
    assert labels != sorted(labels)


def test_another_seed_deals_otherwise() -> None:
    federation = pool([*range(5)] * 20, [*range(5)] * 5, 5)
    for text, options in (("iid", {}), ("shards", {}), ("dirichlet", {"alpha": 1.0})):
        one, other = (PARTITIONS[text](federation, 4, seed, **options) for seed in (1, 2))
        assert any(a.index.tolist() != b.index.tolist() for a, b in _indices(one, other))


def test_pooling_clients_with_arrays_of_their_own() -> None:
    x = np.arange(12, dtype=np.float32).reshape(6, 2)
    y = np.arange(6) % 3
    federation = from_clients([(x[:4], y[:4], x[4:5], y[4:5]), (x[5:], y[5:], None, None)])
    result = PARTITIONS["iid"](federation, 5, 0)
    assert result.sizes.tolist() == [1] * 5
    assert result.test_sizes.sum() == 1
    rows = sorted(tuple(result.train(i).x[0].tolist()) for i in range(5))
    assert rows == sorted(map(tuple, np.concatenate([x[:4], x[5:]]).tolist()))


@pytest.mark.parametrize(
    ("text", "clients", "options", "message"),
    [
        ("iid", 31, {}, "pool has 30 training samples, too few for 31 clients: ask for at most 30"),
        ("dirichlet", 30, {"alpha": 0.01}, "left some of 30 clients .* a larger alpha, or fewer"),
        ("dirichlet", 2, {"alpha": 0.0}, "alpha=0.0: need more than 0"),
        ("dirichlet", 2, {"alpha": 1e9}, "at most 1e6 .*iid is the same"),
        ("shards", 10, {"per_client": 4}, r"needs 40 training samples and pool has 30: take fewer"),
        ("shards", 10, {"per_client": 0}, "per_client=0: must be at least 1"),
        ("owner", 2, {}, "pool has 1 client, not the 2 asked for"),
    ],
)
def test_what_cannot_be_dealt(
    text: str, clients: int, options: dict[str, float], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        PARTITIONS[text](pool([0, 1, 2] * 10, [0], 3), clients, 0, **options)


@pytest.mark.parametrize(("text", "options"), [("dirichlet", {"alpha": 1.0}), ("shards", {})])
def test_targets_have_no_classes(text: str, options: dict[str, float]) -> None:
    x = np.zeros((4, 2), dtype=np.float32)
    federation = from_clients([(x, x, x, x)])
    with pytest.raises(ValueError, match=f"{text} needs classes .*regression.*owner or iid"):
        PARTITIONS[text](federation, 2, 0, **options)
    assert PARTITIONS["iid"](federation, 2, 0).sizes.tolist() == [2, 2]


@given(st.integers(0, 200), st.sampled_from([0.8, 0.9]), st.integers(0, 99))
def test_split(samples: int, share: float, seed: int) -> None:
    train, test = split_train_test(samples, share, seed)
    assert sorted([*train, *test]) == list(range(samples))
    exact = Fraction(str(share)) * samples
    assert len(train) == max(min(1, samples), math.floor(exact))


def test_split_of_each_client_is_another() -> None:
    tests = [split_train_test(30, 0.8, 0, client)[1].tolist() for client in range(5)]
    assert len(set(map(tuple, tests))) == 5
