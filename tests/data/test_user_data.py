"""The user's own arrays and functions, and what is said when something is wrong."""

import sys
import types
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from fedro.data import Examples, Federation, from_clients, make_federation
from fedro.data.federation import ExampleRows
from sample_data import everything


def images(samples: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = np.arange(samples) % 3
    return rng.integers(0, 256, (samples, 1, 2, 2), dtype=np.uint8), y


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    made = types.ModuleType("my_clients")
    monkeypatch.setitem(sys.modules, "my_clients", made)
    return made


class Odd:
    """A part of one's own that is not as it should be."""

    shape = (2,)

    def __init__(self, x: np.ndarray, y: np.ndarray) -> None:
        self.x, self.y = x, y

    def __len__(self) -> int:
        return len(self.x)

    def arrays(self) -> tuple[np.ndarray, np.ndarray]:
        return self.x, self.y


def odd(x: np.ndarray, y: np.ndarray, classes: int = 0) -> Federation:
    return Federation("odd", [(Odd(x, y), Odd(x, y))], classes)  # type: ignore[list-item]


ROWS = np.zeros((3, 2), dtype=np.float32)


def test_own_function(module: types.ModuleType) -> None:
    seen = {}

    def make(size: int = 3, *, clients: int = 2, seed: int) -> list[tuple[Any, ...]]:
        seen.update(size=size, clients=clients, seed=seed)
        return [(np.ones((size, 2)), [0] * size, torch.zeros(1, 2), [1])] * clients

    module.make = make  # type: ignore[attr-defined]
    federation = make_federation("my_clients:make(size=5)", clients=4, seed=9)
    assert seen == {"size": 5, "clients": 4, "seed": 9}
    assert (federation.clients, federation.classes) == (4, 2)
    assert federation.name == "my_clients:make"
    assert federation.train(0).x.dtype == torch.float32
    make_federation("my_clients:make", partition="iid", clients=3)
    assert seen == {"size": 3, "clients": 2, "seed": 0}
    with pytest.raises(ValueError, match="unknown option of my_clients:make 'sise': did you mean"):
        make_federation("my_clients:make(sise=5)")


def test_own_generator(module: types.ModuleType) -> None:
    def make(clients: int) -> Iterator[tuple[Any, ...]]:
        for client in range(clients):
            yield np.full((3, 2), client, np.float32), [0, 1, 1], None, None

    module.make = make  # type: ignore[attr-defined]
    federation = make_federation("my_clients:make", clients=4)
    assert (federation.clients, federation.classes) == (4, 2)
    assert float(federation.train(3).x[0, 0]) == 3


def test_own_function_that_gives_a_federation(module: types.ModuleType) -> None:
    pair = (Examples(torch.zeros(3, 2), torch.zeros(3).long()),) * 2
    module.make = lambda: from_clients([pair] * 5, classes=4)  # type: ignore[attr-defined]
    federation = make_federation("my_clients:make", clients=2)
    assert (federation.clients, federation.classes, federation.name) == (2, 4, "own")
    with pytest.raises(ValueError, match="own has 5 clients, not the 6 asked for"):
        make_federation("my_clients:make", clients=6)


@pytest.mark.parametrize(
    ("made", "message"),
    [
        ({"x": 1}, "my_clients:make gave dict; need a Federation, or a list"),
        (None, "gave NoneType; need a Federation"),
        ([], "there are no clients"),
        ([3], "client 0: cannot read int; need"),
        ([(ROWS, ROWS, ROWS)], "client 0: cannot read tuple; need"),
        ([(ROWS[:0], [], ROWS, [0, 0, 0])], "client 0: no training samples"),
        ([(ROWS, [0, 1], ROWS, [0, 0, 0])], r"client 0 \(train\): x has shape"),
        ([(ROWS, [0, 1, 2], ROWS, [0, 0])], r"client 0 \(test\): x has shape"),
        ([(ROWS + np.nan, [0, 1, 2], None, None)], r"client 0 \(train\): x holds NaN"),
        ([(ROWS, [0, 1, -2], None, None)], "my_clients:make: label -2 is not from 0"),
        (
            [(ROWS, [0, 1, 2], None, None), (ROWS[:, :1], [0, 1, 2], None, None)],
            r"client 1: x of shape \(1,\), but the first client has \(2,\)",
        ),
        (Federation("none", [], 3), "gave a federation without clients"),
        (odd(ROWS[:0], np.zeros(0)), "client 0 has no training samples"),
        (odd(ROWS.astype(float), np.zeros(3, int), 2), "x of type float64 and y of type int64"),
        (odd(ROWS, np.array([0, 1, 2]), 2), "label 2 is not from 0 to 1"),
        (odd(ROWS, np.zeros(3, np.float32), 2), "classes=2, but y are floating"),
        (
            Federation("two", [(ExampleRows(ROWS, np.zeros(3, int), np.arange(3)),) * 2,
                               (ExampleRows(ROWS[:, :1], np.zeros(3, int), np.arange(3)),) * 2], 1),
            r"client 1 has examples of shape \(1,\), the first \(2,\)",
        ),
    ],
)  # fmt: skip
def test_own_function_that_gives_something_else(
    module: types.ModuleType, made: object, message: str
) -> None:
    module.make = lambda: made  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match=message):
        make_federation("my_clients:make")


def test_own_functions_that_cannot_be_called(module: types.ModuleType) -> None:
    module.make = lambda size: []  # type: ignore[attr-defined, misc]
    module.data = 3  # type: ignore[attr-defined]
    with pytest.raises(
        ValueError, match=r"my_clients:make needs size: write my_clients:make\(size"
    ):
        make_federation("my_clients:make")
    with pytest.raises(ValueError, match="my_clients:data is int, not a function"):
        make_federation("my_clients:data")
    with pytest.raises(ValueError, match="did you mean 'make'"):
        make_federation("my_clients:makes")
    with pytest.raises(ValueError, match="there is no module 'nowhere_at_all'"):
        make_federation("nowhere_at_all:make")


def test_from_clients_takes_tensors_of_all_kinds() -> None:
    x = torch.ones(3, 2, dtype=torch.bfloat16, requires_grad=True)
    federation = from_clients(
        [(x, torch.tensor([True, False, True]), [[1.0, 2.0]], [1])], scale=2.0
    )
    assert federation.scale == 2.0
    assert federation.classes == 2
    assert [array.dtype.name for array in everything(federation)] == ["float32", "int64"] * 2
    with pytest.raises(ValueError, match="label 1 is not from 0 to 0"):
        from_clients([(x, [0, 0, 1], None, None)], classes=1)
    with pytest.raises(ValueError, match="x holds NaN, infinite or too large numbers, 1 in all"):
        from_clients([([1e300, 0.0], [0, 0], None, None)])


def one_client(y: Any) -> list[tuple[Any, ...]]:
    x = np.zeros((len(y), 2), np.float32)
    return [(x, y, x[:2], y[:2])]


def test_floating_labels_need_a_task() -> None:
    as_csv_readers_give_them = np.array([0.0, 1.0, 1.0])
    with pytest.raises(ValueError, match="own: y are floating but whole numbers") as error:
        from_clients(one_client(as_csv_readers_give_them))
    assert "write from_clients(…, task='classify')" in str(error.value)
    assert "write from_clients(…, task='regress')" in str(error.value)
    labels = from_clients(one_client(as_csv_readers_give_them), task="classify")
    assert (labels.task, labels.classes, labels.train(0).y.tolist()) == ("classify", 2, [0, 1, 1])
    assert labels.train(0).y.dtype == torch.int64
    targets = from_clients(one_client(as_csv_readers_give_them), task="regress")
    assert (targets.task, targets.train(0).y.dtype) == ("regress", torch.float32)
    with pytest.raises(ValueError, match="floating but whole"):
        from_clients(one_client(as_csv_readers_give_them[:, None]))


def test_a_task_decides_for_all_clients_whatever_their_types() -> None:
    mixed = one_client(np.array([0, 1, 2])) + one_client(torch.tensor([0.0, 1.0, 2.0]))
    with pytest.raises(ValueError, match="client 1: y of type float32, but the first client has"):
        from_clients(mixed)
    assert from_clients(mixed, task="classify").classes == 3
    assert from_clients(mixed, task="regress").train(0).y.tolist() == [0.0, 1.0, 2.0]
    # One that is not whole among all clients is enough to tell that they are targets.
    halves = one_client(np.array([0.0, 1.0])) + one_client(np.array([0.0, 1.5]))
    assert from_clients(halves).task == "regress"
    for odd_one, text in ((1.5, "1.5"), (np.nan, "nan"), (1e300, r"1e\+300")):
        clients = one_client(np.array([0.0, 1.0])) + one_client(np.array([0.0, odd_one]))
        with pytest.raises(ValueError, match=rf"own, client 1 \(train\): y holds {text}: with"):
            from_clients(clients, task="classify")
    with pytest.raises(ValueError, match="task='classification': must be 'classify'"):
        from_clients(mixed, task="classification")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="classes=3, but y are floating"):
        from_clients(mixed, task="regress", classes=3)


@pytest.mark.parametrize(
    ("labels", "message", "classes"),
    [
        ([0, 1, 5], "labels go up to 5, but no client has the labels 2, 3, 4.", 6),
        (list(range(1, 11)), "no client has the label 0. Number the classes from 0", 11),
        ([0, 100], "labels 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and 89 others.", 101),
    ],
)
def test_labels_with_gaps(labels: list[int], message: str, classes: int) -> None:
    with pytest.raises(ValueError) as error:
        from_clients(one_client(labels))
    assert message in str(error.value)
    assert f"write from_clients(…, classes={classes})" in str(error.value)
    assert from_clients(one_client(labels), classes=classes).classes == classes


def test_a_label_that_only_some_clients_lack_is_no_gap() -> None:
    x = np.zeros((2, 2), np.float32)
    only_in_a_test = (x, [0, 3], x[:1], [2])
    assert from_clients([only_in_a_test, (x, [0, 1], None, None)]).classes == 4


def test_a_single_label_would_be_learned_perfectly_by_any_model() -> None:
    with pytest.raises(ValueError, match=r"all labels are 0, .*, write from_clients\(…, classes=2"):
        from_clients(one_client([0, 0]))
    assert from_clients(one_client([0, 0]), classes=2).classes == 2


def test_a_function_of_your_own_is_told_what_to_return(module: types.ModuleType) -> None:
    module.make = lambda: one_client([0.0, 1.0])  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="floating but whole") as error:
        make_federation("my_clients:make")
    wanted = "`return fedro.data.from_clients(clients, task='classify')` in my_clients:make"
    assert f"write {wanted}" in str(error.value)
    module.make = lambda: from_clients(one_client([0.0, 1.0]), task="classify")  # type: ignore[attr-defined]
    assert make_federation("my_clients:make").classes == 2
    module.make = lambda: one_client([1, 2])  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match=r"from_clients\(clients, classes=3\)` in my_clients:make"):
        make_federation("my_clients:make")
