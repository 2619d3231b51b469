"""With Flower's own grid and the state of its SuperLink, and threads for nodes."""

import numpy as np
import pytest

from fake_flower import model, raises, sends, silent, small_plan
from fedro.flower import FedRo
from fedro.runs import read
from flower_grid import federation


@pytest.mark.slow
def test_a_run_with_flowers_own_grid(tmp_path):
    nan = sends(lambda w: {name: value * np.nan for name, value in w.items()})
    with federation({0: nan, 1: raises, 2: silent}) as grid:
        strategy = FedRo(
            plan=small_plan(), folder=tmp_path / "run", evaluate_every=3, max_void_rounds=9
        )
        result = strategy.start(grid, model(), num_rounds=6, timeout=1.0)
    lines = read(tmp_path / "run").rounds
    moved = sum(line["void"] is None for line in lines)
    assert moved >= 3
    assert all(np.allclose(array.numpy(), moved) for array in result.arrays.values())
    assert {line["available"] for line in lines} == {20}
    reasons = {r for line in lines for r in [*line["missing"].values(), *line["rejected"].values()]}
    assert all(r.startswith(("error 2: boom", "did not", "holds NaN")) for r in reasons)
    if moved == 6:
        assert result.evaluate_metrics_clientapp[6]["eval_acc"] == pytest.approx(0.8)
