"""The digits of scikit-learn."""

import sys

import pytest
import torch

from fedro.data import make_federation
from sample_data import same


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
