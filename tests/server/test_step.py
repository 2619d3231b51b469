"""The server trusts nothing: sampling, screening, and a step that never spends the tolerance."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import nn

from fedro.models import FlatModel
from fedro.rules import parse_rule
from fedro.server import State, sample, screen, starts_from_last, step
from fedro.server.scores import aggregation_error, score_examples


def test_samples_are_uniform_and_independent():
    draws = np.array([sample(0, t, 12, 5) for t in range(6000)])
    assert all(len(set(row)) == 5 for row in draws[:200])
    expected = 6000 * 5 / 12
    spread = np.sqrt(6000 * 5 / 12 * 7 / 12)
    assert (abs(np.bincount(draws.ravel()) - expected) < 4.5 * spread).all()
    repeats = [len(set(a) & set(b)) for a, b in pairwise(draws)]
    assert abs(np.mean(repeats) - 25 / 12) < 0.05
    assert (sample(0, 3, 12, 5) == draws[3]).all()
    assert not (sample(1, 3, 12, 5) == draws[3]).all()


def test_rows_are_screened():
    updates = torch.zeros(5, 3)
    updates[1, 2], updates[3, 0] = torch.nan, -torch.inf
    rows = np.array([0, 1, 3, 4])
    assert screen(updates, rows) == {1: "holds NaN or Inf", 3: "holds NaN or Inf"}
    assert screen(updates, np.array([], dtype=np.int64)) == {}


def one_step(updates, rows, rule="trimmed_mean", tolerated=1, flat=None, **options):
    flat = flat or FlatModel(nn.Linear(3, 1))
    return step(
        torch.ones(flat.width),
        updates,
        np.asarray(rows, dtype=np.int64),
        parse_rule(rule),
        tolerated=tolerated,
        server_lr=0.5,
        layout=flat,
        **options,
    )


def test_a_step_is_the_rule_times_the_server_rate():
    updates = torch.tensor([[0.0] * 4, [2.0] * 4, [4.0] * 4, [1e9] * 4])
    result = one_step(updates, range(4))
    assert torch.equal(result.model, torch.full((4,), 1 + 0.5 * 3.0))
    assert torch.equal(result.aggregate, torch.full((4,), 3.0))
    assert result.void is None


def test_missing_replies_lower_the_number_received_and_not_the_tolerance():
    updates = torch.tensor([[0.0] * 4, [2.0] * 4, [4.0] * 4, [1e9] * 4])
    three = one_step(updates, [0, 1, 3])
    assert torch.equal(three.aggregate, torch.full((4,), 2.0))  # 1 of 3, not 0 of 2
    two = one_step(updates, [0, 3])
    assert two.aggregate is None
    assert torch.equal(two.model, torch.ones(4))
    assert two.void == "2 usable replies, and 2·1 may be bad"
    assert one_step(updates, []).void is not None


def test_a_rule_that_cannot_work_with_what_is_left_makes_the_round_void():
    updates = torch.randn(6, 4)
    assert "needs n ≥ 4b+3" in one_step(updates, range(6), "bulyan").void
    assert one_step(updates, range(6), "krum").void is None


def test_statistics_are_trimmed_by_themselves_and_variances_stay_above_zero():
    flat = FlatModel(nn.BatchNorm1d(2))
    assert (flat.trained, flat.width) == (4, 8)
    updates = torch.zeros(3, 8)
    updates[:, 4:6] = torch.tensor([1.0, 2.0, 1e9])[:, None]
    updates[:, 6:] = torch.tensor([-2.0, -3.0, -4.0])[:, None]
    result = one_step(updates, range(3), "krum", flat=flat)
    assert result.model.tolist() == [1.0] * 4 + [3.0, 3.0, 0.0, 0.0]
    averaged = one_step(updates, range(3), "mean", flat=flat)
    assert averaged.model[4].item() > 1e8


def test_state_goes_into_tensors_and_back():
    full = State(3, torch.rand(4), torch.rand(4), {"z": torch.rand(2)}, torch.rand(4))
    for state in (full, State(0, torch.rand(2))):
        again = State.from_tensors(state.round, state.tensors())
        assert again.tensors().keys() == state.tensors().keys()
        assert all(torch.equal(v, again.tensors()[k]) for k, v in state.tensors().items())


def test_the_error_is_the_definition():
    updates = torch.randn(7, 50, dtype=torch.float64).float()
    honest = np.array([0, 2, 3, 6])
    aggregate = updates.mean(0)
    rows = updates[honest].double()
    found = aggregation_error(updates, honest, aggregate)
    assert found.squared == pytest.approx(float((aggregate - rows.mean(0)).square().sum()), 1e-5)
    assert found.variance == pytest.approx(
        float((rows - rows.mean(0)).square().sum(1).mean()), 1e-5
    )
    assert found.kappa == pytest.approx(found.squared / found.variance)
    same = torch.ones(3, 4)
    assert aggregation_error(same, np.arange(3), same[0]).kappa == 0
    assert aggregation_error(same, np.arange(3), 2 * same[0]).kappa is None


def test_scores_show_the_clients_that_fare_worst():
    owners = np.repeat(np.arange(20), 4)
    right = np.ones(80, dtype=bool)
    right[:4] = False  # client 0: all wrong
    right[4:6] = False  # client 1: half wrong
    found = score_examples(np.ones(80), right, owners)
    assert found.accuracy == 74 / 80
    assert found.clients == pytest.approx((18 + 0.5) / 20)
    assert found.worst == 0.25  # the worst two of twenty
    assert score_examples(np.array([1.0, np.inf]), None, np.array([0, 0])).accuracy is None
    uneven = score_examples(np.ones(3), np.array([True, False, False]), np.array([0, 2, 2]))
    assert (uneven.accuracy, uneven.clients) == (1 / 3, 0.5)


def test_a_step_needs_no_module_only_a_layout():
    class Places:
        trained, width, variances = 1, 2, [slice(1, 2)]

    updates = torch.tensor([[1.0, -5.0], [1.0, -5.0], [1.0, -5.0]])
    assert one_step(updates, range(3), flat=Places()).model.tolist() == [1.5, 0.0]


def test_rules_that_start_from_their_last_output():
    assert starts_from_last(parse_rule("centered_clipping"))
    assert not starts_from_last(parse_rule("nnm | trimmed_mean"))
