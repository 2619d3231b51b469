"""The federation itself: sizes, fresh tensors, the first clients, the summary and the picture."""

import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch

from fedro.data import Examples, Federation, from_clients, make_federation
from sample_data import same


def small() -> Federation:
    x = np.arange(40, dtype=np.uint8).reshape(10, 1, 2, 2)
    y = np.array([0, 0, 0, 0, 0, 1, 2, 1, 2, 0])
    return from_clients(
        [(x[:4], y[:4], x[4:5], y[4:5]), (x[5:9], y[5:9], x[9:], y[9:]), (x[:1], y[:1], None, None)]
    )


def test_what_is_known() -> None:
    federation = small()
    assert (federation.clients, federation.classes, federation.task) == (3, 3, "classify")
    assert federation.shape == (1, 2, 2)
    assert (federation.shift, federation.scale) == (0.0, 255.0)
    assert federation.sizes.tolist() == [4, 4, 1]
    assert federation.test_sizes.tolist() == [1, 1, 0]
    assert federation.classes_per_client.tolist() == [1, 2, 1]
    assert federation.label_counts.tolist() == [[4, 0, 0], [0, 2, 2], [1, 0, 0]]
    assert repr(federation) == "Federation(name='own', classes=3, partition='owner')"
    with pytest.raises(ValueError, match="read-only"):
        federation.sizes[0] = 1


def test_examples() -> None:
    x, y = small().train(np.int64(1))
    assert (x.dtype, y.dtype) == (torch.uint8, torch.int64)
    assert x.flatten().tolist() == list(range(20, 36))
    assert y.tolist() == [1, 2, 1, 2]
    assert isinstance(small().test(2), Examples)
    assert small().test(2).x.shape == (0, 1, 2, 2)


@pytest.mark.parametrize("text", ["synthetic", "own"])
def test_what_a_caller_changes_stays_with_the_caller(text: str) -> None:
    federation = small() if text == "own" else make_federation(text, clients=3)
    before = federation.train(0)
    kept = [tensor.clone() for tensor in before]
    before.x.fill_(7)
    before.y.fill_(0)
    assert all(torch.equal(a, b) for a, b in zip(federation.train(0), kept, strict=True))


@pytest.mark.parametrize("client", [3, -1, 1.0, "0"])
def test_clients_that_are_not_there(client: object) -> None:
    with pytest.raises(ValueError, match=r"client=.*from 0 to 2 \(of 3 clients\)"):
        small().train(client)  # type: ignore[arg-type]


def test_first() -> None:
    federation = small()
    assert same(federation.first(3), federation)
    assert federation.first(2).sizes.tolist() == [4, 4]
    assert federation.first(1).classes == 3
    with pytest.raises(ValueError, match="own has 3 clients, not the 4 asked for: ask for fewer"):
        federation.first(4)
    with pytest.raises(ValueError, match="clients=0: must be at least 1"):
        federation.first(0)


def test_summary() -> None:
    assert small().summary().splitlines() == [
        "own: 3 clients (owner), 3 classes, examples of shape 1×2×2",
        "each client            min   median      max   in all",
        "training samples         1        4        4        9",
        "test samples             0        1        1        2",
        "classes                  1        1        2        3",
    ]
    assert "regression, examples of shape 10" in make_federation("synthetic").summary()
    assert "classes" not in make_federation("synthetic").summary()


def test_pickle() -> None:
    federation = make_federation("synthetic", clients=4)
    assert same(pickle.loads(pickle.dumps(federation)), federation)


@pytest.mark.slow
def test_import_is_light() -> None:
    code = (
        "import sys, fedro.data; fedro.data.make_federation('synthetic').train(0); "
        "print([m for m in ('sklearn', 'pyarrow', 'PIL', 'matplotlib', 'datasets', 'pandas') "
        "if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout.strip() == "[]"


def test_the_description_says_task_classes_and_examples() -> None:
    digits = make_federation("digits", clients=5)
    assert digits.description() == (
        "classification with 10 classes, 1,437 training examples (287 to 288 a client) and 360 "
        "test examples (72 a client)"
    )
    targets = make_federation("synthetic(samples=8)", clients=4).description()
    assert targets.startswith("regression, 32 training examples (8 a client) and")
