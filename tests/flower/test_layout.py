"""Named arrays and the flat vector; arrays from strangers are read without trust."""

import io
import warnings
from contextlib import suppress

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord

from fake_flower import model
from fedro.flower.layout import ArrayLayout, UnusableReply, read_floats


def test_statistics_come_last_and_whole_numbers_stay_out():
    arrays = model(
        **{
            "norm.running_var": np.ones(2, np.float32),
            "norm.num_batches_tracked": np.array(7),
            "norm.weight": np.full(2, 3, np.float32),
        }
    )
    layout = ArrayLayout(arrays)
    assert (layout.trained, layout.width, layout.variances) == (10, 12, [slice(10, 12)])
    vector = layout.vector(arrays)
    assert vector.tolist() == [0.0] * 8 + [3.0, 3.0, 1.0, 1.0]
    again = layout.record(vector)
    assert list(again) == list(arrays)
    assert all(again[name].data == arrays[name].data for name in arrays)
    row = torch.empty(12)
    layout.write({n: a for n, a in arrays.items() if n != "norm.num_batches_tracked"}, row)
    assert torch.equal(row, vector)
    named = ArrayLayout(model(), ["layer.bias"])
    assert (named.trained, named.width) == (6, 8)


def test_models_that_cannot_be_trained_are_refused():
    with pytest.raises(ValueError, match="no such array of floats"):
        ArrayLayout(model(), ["bias"])
    with pytest.raises(ValueError, match="no floating-point parameter"):
        ArrayLayout(ArrayRecord({"a": Array(np.zeros(3, int))}))
    nan = model(more=np.full(2, np.nan, np.float32))
    with pytest.raises(ValueError, match="start from a finite one"):
        ArrayLayout(nan).vector(nan)


def test_doubles_stay_doubles():
    arrays = model(wide=np.full(1, 1 / 3))
    layout = ArrayLayout(arrays)
    assert layout.dtype == torch.float64
    again = layout.record(layout.vector(arrays))
    assert again["wide"].numpy()[0] == 1 / 3
    assert again["layer.bias"].dtype == "float32"


def test_arrays_without_numbers_and_scalars_are_read():
    for value in (np.zeros((0, 3), np.float32), np.array(2.0, np.float32)):
        assert np.array_equal(read_floats("a", Array(value), value.shape), value)


def test_random_bytes_never_do_more_than_be_refused():
    random = np.random.default_rng(0)
    buffer = io.BytesIO()
    np.save(buffer, np.zeros((2, 3), np.float32))
    good = np.frombuffer(buffer.getvalue(), np.uint8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(300):
            data = good.copy()
            data[random.integers(len(data), size=4)] = random.integers(256, size=4)
            array = Array("float32", (2, 3), "numpy.ndarray", data.tobytes())
            with suppress(UnusableReply):
                assert read_floats("a", array, (2, 3)).shape == (2, 3)
