"""digits, synthetic, a folder, your own: and what is said when something is wrong."""

import math
import sys
import types
import zipfile
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedro.data import SOURCES, Examples, Federation, from_clients, make_federation, spread
from fedro.data.federation import Rows
from fedro.data.splitting import split
from sample_data import everything, same


def test_table() -> None:
    assert sorted(SOURCES) == ["cifar10", "digits", "femnist", "folder", "synthetic"]
    for source in SOURCES.values():
        assert source.summary.endswith(".")
    assert list(SOURCES["synthetic"].options) == ["dim", "samples", "sigma", "zeta"]


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("digit", {}, "unknown data source 'digit': did you mean 'digits'"),
        ("digits | digits", {}, "give one data source, not 2"),
        ("digits(size=3)", {}, "unknown option of digits 'size'"),
        ("synthetic(dim=1.5)", {}, "dim must be of type int"),
        ("digits", {"partition": "dirichlet"}, r"dirichlet needs alpha=…"),
        ("digits", {"partition": "dirichlt(alpha=1)"}, "unknown partition .* 'dirichlet'"),
        ("digits", {"partition": "iid(alpha=1)"}, "unknown option of iid 'alpha'"),
        ("digits", {"partition": "owner"}, "digits belong to nobody; choose one of iid, dirichlet"),
        ("digits", {"clients": 0}, "clients=0: must be at least 1"),
        ("digits", {"seed": -1}, "seed=-1: must be at least 0"),
        ("synthetic(sigma=-1)", {}, "sigma=-1: need from 0"),
        ("synthetic(samples=1)", {}, "samples=1: one sample is its own mean; need 2, or sigma=0"),
        ("synthetic", {"clients": 1}, "clients=1: one client is its own mean; need 2, or zeta=0"),
        ("folder", {}, "folder needs a path: folder.path='…'.*x_train, y_train"),
        ("folder(path='nowhere')", {}, "folder.path='nowhere'.: there is no .*/nowhere"),
    ],
)
def test_wrong_texts(text: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        make_federation(text, **options)


@given(st.integers(0, 200), st.sampled_from([0.8, 0.9]), st.integers(0, 99))
def test_split(samples: int, share: float, seed: int) -> None:
    train, test = split(samples, share, seed)
    assert sorted([*train, *test]) == list(range(samples))
    exact = Fraction(str(share)) * samples
    assert len(train) == max(min(1, samples), math.floor(exact))


def test_split_of_each_client_is_another() -> None:
    tests = [split(30, 0.8, 0, client)[1].tolist() for client in range(5)]
    assert len(set(map(tuple, tests))) == 5


@pytest.mark.slow
def test_digits() -> None:
    federation = make_federation("digits", clients=20)
    train = torch.cat([federation.train(i).x for i in range(20)])
    assert (federation.name, federation.partition) == ("digits", "iid")
    assert (federation.clients, federation.classes) == (20, 10)
    assert train.shape == (1437, 1, 8, 8)
    assert train.dtype == torch.float32
    assert (train.min(), train.max()) == (0, 1)
    assert federation.test_sizes.sum() == 360
    assert (federation.shift, federation.scale) == (0.0, 1.0)
    assert same(federation, make_federation("digits", clients=20))
    assert not same(federation, make_federation("digits", clients=20, seed=1))
    with pytest.raises(ValueError, match="digits has 1437 training samples, too few for 2000"):
        make_federation("digits", clients=2000)


def test_digits_without_scikit_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(FileNotFoundError, match="pip install scikit-learn"):
        make_federation("digits")


@given(
    clients=st.integers(2, 5),
    samples=st.integers(2, 12),
    dim=st.integers(1, 4),
    sigma=st.sampled_from([0.0, 0.1, 1.0, 30.0]),
    zeta=st.sampled_from([0.0, 0.1, 1.0, 30.0]),
    seed=st.integers(0, 99),
)
def test_synthetic_moments_are_exact(
    clients: int, samples: int, dim: int, sigma: float, zeta: float, seed: int
) -> None:
    text = f"synthetic(dim={dim}, samples={samples}, sigma={sigma}, zeta={zeta})"
    federation = make_federation(text, clients=clients, seed=seed)
    problem = federation.problem
    assert problem is not None
    assert (problem["sigma"], problem["zeta"], problem["L"]) == (sigma, zeta, 1.0)
    close = {"rel": 1e-5, "abs": 1e-10 + 1e-6 * (sigma + zeta + 1) ** 2}
    means = []
    for i, center in enumerate(problem["centers"].double()):
        for x, y in (federation.train(i), federation.test(i)):
            assert torch.equal(x, y)
            points = y.double()
            means.append(points.mean(0))
            assert means[-1].tolist() == pytest.approx(center.tolist(), **close)
            squared = (points - center).square().sum(1).mean()
            assert float(squared) == pytest.approx(sigma**2, **close)
    centers = torch.stack(means[::2])
    assert float((centers - centers.mean(0)).square().sum(1).mean()) == pytest.approx(
        zeta**2, **close
    )
    assert centers.mean(0).tolist() == pytest.approx(problem["optimum"].tolist(), **close)


def test_synthetic_gradients_have_the_constants_of_the_theorems() -> None:
    """σ² is the variance of a client's stochastic gradient, ζ² that of the clients' gradients."""
    federation = make_federation("synthetic(dim=4, sigma=2.0, zeta=3.0)", clients=6, seed=5)
    w = torch.randn(4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    gradients = []
    for i in range(6):
        each = w - federation.train(i).y.double()  # ∇ ½‖w − s‖²
        gradients.append(each.mean(0))
        assert float((each - gradients[-1]).square().sum(1).mean()) == pytest.approx(4, rel=1e-5)
    full = torch.stack(gradients)
    assert float((full - full.mean(0)).square().sum(1).mean()) == pytest.approx(9, rel=1e-5)


def test_synthetic_of_some_clients() -> None:
    federation = make_federation("synthetic(zeta=2.0)", clients=8)
    problem, few = federation.problem, federation.first(3).problem
    assert problem is not None
    assert few is not None
    assert spread(problem["centers"]) == pytest.approx(2.0, rel=1e-6)
    assert few["zeta"] == pytest.approx(spread(problem["centers"][:3]))
    assert torch.allclose(few["optimum"], problem["centers"][:3].mean(0))
    assert make_federation("synthetic", clients=4, partition="iid").problem is None


def save(place: Path, name: str, **arrays: np.ndarray) -> None:
    np.savez(place / name, **arrays)


def images(samples: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = np.arange(samples) % 3
    return rng.integers(0, 256, (samples, 1, 2, 2), dtype=np.uint8), y


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Three clients, the second compressed, the last to be split."""
    x, y = images(10)
    save(tmp_path, "client_2.npz", x_train=x[:4], y_train=y[:4], x_test=x[4:], y_test=y[4:])
    np.savez_compressed(
        tmp_path / "client_9.npz", x_train=x, y_train=y.astype(np.uint8), x_test=x[:0], y_test=[]
    )
    save(tmp_path, "client_10.npz", x=x, y=y)
    return tmp_path


def test_folder(place: Path) -> None:
    federation = make_federation(f"folder(path='{place}')")
    x, y = images(10)
    assert list(federation.owners) == ["client_2", "client_9", "client_10"]
    assert (federation.classes, federation.scale, federation.shape) == (3, 255.0, (1, 2, 2))
    assert federation.sizes.tolist() == [4, 10, 8]
    assert federation.test_sizes.tolist() == [6, 0, 2]
    assert np.array_equal(federation.train(0).x, x[:4])
    assert np.array_equal(federation.test(0).x, x[4:])
    assert np.array_equal(federation.train(1).y, y)
    assert federation.test(1).x.shape == (0, 1, 2, 2)
    both = torch.cat([federation.train(2).x, federation.test(2).x]).flatten(1).tolist()
    assert sorted(both) == sorted(x.reshape(10, -1).tolist())
    assert same(federation, make_federation(f"folder(path='{place}')"))
    dealt = make_federation(f"folder(path='{place}')", clients=4, partition="iid")
    assert dealt.sizes.sum() == 22
    assert make_federation(f"folder(path='{place}', classes=7)").classes == 7
    with pytest.raises(ValueError, match="has 3 clients, not the 5 asked for"):
        make_federation(f"folder(path='{place}')", clients=5)


def test_folder_reads_a_file_when_asked(place: Path) -> None:
    federation = make_federation(f"folder(path='{place}')", clients=2)
    (place / "client_2.npz").unlink()
    assert len(federation.train(1).x) == 10
    with pytest.raises(ValueError, match=r"client_2.npz is damaged or .*No such file"):
        federation.train(0)
    x, y = images(9)
    save(place, "client_9.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    with pytest.raises(ValueError, match=r"client_9.npz has changed since it was opened"):
        federation.train(1)


def test_folder_ignores_clients_that_are_not_asked_for(place: Path) -> None:
    (place / "client_11.npz").write_bytes(b"broken")
    assert make_federation(f"folder(path='{place}')", clients=3).clients == 3
    with pytest.raises(ValueError, match=r"client_11.npz is damaged"):
        make_federation(f"folder(path='{place}')")


X, Y = images(4)
NAN = np.array([[1.0], [np.nan], [2.0], [np.inf]])


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x_train": X, "y_train": Y}, "no array x_test, y_test; it has x_train, y_train"),
        ({"x": X}, "no array y; it has x"),
        ({"data": X}, "no array x_train, y_train, x_test, y_test; it has data"),
        ({"x": X[:0], "y": Y[:0]}, "no training samples; take the file out"),
        ({"x": X, "y": Y[:3]}, r"x has shape \(4, 1, 2, 2\) and y \(3,\)"),
        ({"x": X, "y": np.stack([Y, Y], 1)}, r"labels y have shape \(4, 2\)"),
        ({"x": X, "y": np.array(list("abcd"))}, "y is of type <U1; need whole numbers"),
        ({"x": X.astype(np.int32), "y": Y}, "x is of type int32; need uint8 images or floating"),
        ({"x": X, "y": Y - 1}, "label -1 is not from 0"),
        ({"x": X, "y": Y + 10**7}, "label 10000002 is not from 0 to 999999; number the classes"),
        ({"x": X[:, :, :1], "y": Y}, r"x of shape \(1, 1, 2\), but the first client has \(1, 2, 2"),
        ({"x": X / 255, "y": Y}, "x of type float32, but the first client has uint8"),
        ({"x": X, "y": Y / 2}, "y of type float32, but the first client has int64"),
        ({"x": X, "y": np.array([1, 2, None, 3])}, "damaged or not an .npz file .*allow_pickle"),
    ],
)
def test_folder_with_something_wrong(
    place: Path, arrays: dict[str, np.ndarray], message: str
) -> None:
    save(place, "client_99.npz", **arrays)
    with pytest.raises(ValueError, match=message) as caught:
        make_federation(f"folder(path='{place}')")
    assert str(place) in str(caught.value)


def test_folder_with_numbers_that_are_not(tmp_path: Path) -> None:
    save(tmp_path, "a.npz", x=NAN, y=np.zeros(4, dtype=int))
    federation = make_federation(f"folder(path='{tmp_path}')")
    with pytest.raises(ValueError, match=r"a.npz: x holds NaN, .* 2 in all"):
        federation.train(0)
    save(tmp_path, "a.npz", x=np.ones((4, 1)), y=NAN)
    with pytest.raises(ValueError, match=r"a.npz: y holds NaN"):
        make_federation(f"folder(path='{tmp_path}')")


def test_folder_cut_off_or_empty(place: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    whole = (place / "client_9.npz").read_bytes()
    for size in (0, 10, len(whole) // 2, len(whole) - 5):
        (place / "client_9.npz").write_bytes(whole[:size])
        with pytest.raises(ValueError, match=r"client_9.npz is damaged or not an .npz file"):
            make_federation(f"folder(path='{place}')")
    empty = tmp_path_factory.mktemp("empty")
    with pytest.raises(FileNotFoundError, match=r"holds no .npz file. Need one .npz"):
        make_federation(f"folder(path='{empty}')")
    with zipfile.ZipFile(place / "client_9.npz", "w") as archive:
        archive.writestr("x.npy", b"not an array")
    with pytest.raises(ValueError, match=r"client_9.npz is damaged"):
        make_federation(f"folder(path='{place}')")


def test_regression_in_a_folder(tmp_path: Path) -> None:
    x = np.arange(10.0).reshape(5, 2)
    save(tmp_path, "a.npz", x=x, y=x.sum(1))
    federation = make_federation(f"folder(path='{tmp_path}')")
    assert (federation.task, federation.classes, federation.scale) == ("regress", 0, 1.0)
    assert federation.train(0).y.dtype == torch.float32
    with pytest.raises(ValueError, match=r"classes=3, but y are floating numbers"):
        make_federation(f"folder(path='{tmp_path}', classes=3)")


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    made = types.ModuleType("my_clients")
    monkeypatch.setitem(sys.modules, "my_clients", made)
    return made


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


def test_own_function_that_gives_a_federation(module: types.ModuleType) -> None:
    pair = (Examples(torch.zeros(3, 2), torch.zeros(3).long()),) * 2
    module.make = lambda: from_clients([pair] * 5, classes=4)  # type: ignore[attr-defined]
    federation = make_federation("my_clients:make", clients=2)
    assert (federation.clients, federation.classes, federation.name) == (2, 4, "own")
    with pytest.raises(ValueError, match="own has 5 clients, not the 6 asked for"):
        make_federation("my_clients:make", clients=6)


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
            Federation("two", [(Rows(ROWS, np.zeros(3, int), np.arange(3)),) * 2,
                               (Rows(ROWS[:, :1], np.zeros(3, int), np.arange(3)),) * 2], 1),
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
