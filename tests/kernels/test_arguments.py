"""Wrong arguments raise an error that says what is needed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from fedro import kernels


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda x: kernels.band(x, 5, 5), ValueError, "low < high"),
        (lambda x: kernels.band(x, -1, 5), ValueError, "low"),
        (lambda x: kernels.band(x, 1.5, 5), TypeError, "integer"),
        (lambda x: kernels.band(x, nearest=0), ValueError, "nearest"),
        (lambda x: kernels.band(x, nearest=12), ValueError, "nearest"),
        (lambda x: kernels.band(x, mixing=[[11]]), ValueError, "outside"),
        (lambda x: kernels.band(x, mixing=[[]]), ValueError, "non-empty"),
        (lambda x: kernels.band(x, scale=[1.0]), ValueError, "scale"),
        (lambda x: kernels.combine(x, [1.0]), ValueError, "weights"),
        (lambda x: kernels.distances(x, rows=[-1]), ValueError, "outside"),
        (lambda x: kernels.distances(x, rows=[True]), ValueError, "mask"),
        (lambda x: kernels.distances(x, rows=np.zeros(11, bool)), ValueError, "non-empty"),
        (lambda x: kernels.distances(x, backend="gpu"), ValueError, "backend"),
        (lambda x: kernels.facts(x, np.ones(3)), ValueError, "reference"),
        (lambda x: kernels.distances(x[0]), ValueError, "shape"),
        (lambda x: kernels.distances(x[:, :0]), ValueError, "empty"),
        (lambda x: kernels.distances(x.astype(int)), TypeError, "int64"),
        (lambda x: kernels.distances(torch.ones(2, 2, dtype=torch.int32)), TypeError, "int32"),
        (lambda x: kernels.distances(x.tolist()), TypeError, "list"),
    ],
)
def test_wrong_arguments_say_what_to_do(call: Any, error: type, text: str) -> None:
    with pytest.raises(error, match=text):
        call(np.ones((11, 9000), np.float32))
