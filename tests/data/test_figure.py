"""The figure of a federation has its values."""

import numpy as np

from fedro.data import from_clients, make_federation
from fedro.data.figure import federation_figure


def test_figure() -> None:
    x = np.arange(40, dtype=np.uint8).reshape(10, 1, 2, 2)
    y = np.array([0, 0, 0, 0, 0, 1, 2, 1, 2, 0])
    federation = from_clients(
        [(x[:4], y[:4], x[4:5], y[4:5]), (x[5:9], y[5:9], x[9:], y[9:]), (x[:1], y[:1], None, None)]
    )
    figure = federation_figure(federation)
    samples, classes = figure.axes
    train, test = samples.patches
    assert train.get_data().values.tolist() == [4, 4, 1]
    assert test.get_data().values.tolist() == [1, 1, 0]
    assert classes.patches[0].get_data().values.tolist() == [2, 1, 1]
    assert "own, 3 clients (owner)" in figure.get_suptitle()
    assert len(federation_figure(make_federation("synthetic")).axes) == 1
