"""A folder with a file for each client, and what is said when something is wrong."""

import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from fedro.data import make_federation
from sample_data import same


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


X, Y = images(4)
NAN = np.array([[1.0], [np.nan], [2.0], [np.inf]])


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
    save(tmp_path, "a.npz", x=NAN, y=np.arange(4) % 2)
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
    save(tmp_path, "a.npz", x=x, y=x.sum(1) + 0.5)
    federation = make_federation(f"folder(path='{tmp_path}')")
    assert (federation.task, federation.classes, federation.scale) == ("regress", 0, 1.0)
    assert federation.train(0).y.dtype == torch.float32
    with pytest.raises(ValueError, match=r"classes=3, but y are floating numbers"):
        make_federation(f"folder(path='{tmp_path}', classes=3)")


def test_floating_labels_in_a_folder_need_a_task(tmp_path: Path) -> None:
    x, y = images(6)
    save(tmp_path, "a.npz", x_train=x, y_train=y.astype(float), x_test=x, y_test=y.astype(float))
    with pytest.raises(ValueError, match="floating but whole") as error:
        make_federation(f"folder(path='{tmp_path}')")
    assert f"write folder(path='{tmp_path}', task='classify')" in str(error.value)
    labels = make_federation(f"folder(path='{tmp_path}', task='classify')")
    assert (labels.task, labels.classes, labels.test(0).y.tolist()) == ("classify", 3, y.tolist())
    targets = make_federation(f"folder(path='{tmp_path}', task='regress')")
    assert (targets.task, targets.train(0).y.dtype) == ("regress", torch.float32)
    with pytest.raises(ValueError, match="or 'classify' or 'regress'"):
        make_federation(f"folder(path='{tmp_path}', task='classification')")
    save(tmp_path, "b.npz", x_train=x, y_train=y + 0.5, x_test=x, y_test=y)
    with pytest.raises(ValueError, match=r"b.npz: y_train holds 0.5: with task='classify'"):
        make_federation(f"folder(path='{tmp_path}', task='classify')")


def test_a_gap_in_the_labels_of_a_folder(tmp_path: Path) -> None:
    x, y = images(6)
    save(tmp_path, "a.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    save(tmp_path, "b.npz", x_train=x, y_train=y, x_test=x[:1], y_test=[4])
    save(tmp_path, "c.npz", x_train=x, y_train=y, x_test=x[:1], y_test=[3])
    assert make_federation(f"folder(path='{tmp_path}')").classes == 5
    with pytest.raises(ValueError, match=r"no client has the label 3\.") as error:
        make_federation(f"folder(path='{tmp_path}')", clients=2)
    assert f"write folder(path='{tmp_path}', classes=5)" in str(error.value)
    assert make_federation(f"folder(path='{tmp_path}', classes=9)", clients=2).classes == 9
