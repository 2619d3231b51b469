"""The server trusts nothing: sampling, screening, and a step that never spends the tolerance."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import nn

from fedro.models import FlatModel
from fedro.rules import parse_rule
from fedro.server import Round, State, aggregate, rule_seed, sample, screen, starts_from_last, step


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
    assert two.void == "2 usable replies, but tolerating 1 needs at least 3"
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


def test_a_step_needs_no_module_only_a_layout():
    class Places:
        trained, width, variances = 1, 2, [slice(1, 2)]

    updates = torch.tensor([[1.0, -5.0], [1.0, -5.0], [1.0, -5.0]])
    assert one_step(updates, range(3), flat=Places()).model.tolist() == [1.5, 0.0]


def test_rules_that_start_from_their_last_output():
    assert starts_from_last(parse_rule("centered_clipping"))
    assert not starts_from_last(parse_rule("nnm | trimmed_mean"))


def one_round(model, updates, rule="trimmed_mean", **options):
    """A round in which all rows are usable; its record, and the aggregate."""
    state = State(4, model, previous=options.pop("previous", None))
    round_ = Round(4, 0.1, np.arange(len(updates)), None, state)
    given = {"tolerated": 1, "server_lr": 1.0, "layout": FlatModel(nn.Linear(1, 1)), "seed": 7}
    aggregated = aggregate(
        round_, updates, np.arange(len(updates)), parse_rule(rule), **{**given, **options}
    )
    return round_, aggregated


def test_a_round_records_its_step():
    updates = torch.tensor([[0.0, 1.0], [2.0, 3.0], [4.0, 9.0]])
    round_, aggregated = one_round(torch.ones(2), updates)
    assert aggregated.tolist() == [2.0, 3.0]
    assert round_.state.model.tolist() == [3.0, 4.0]
    assert (round_.void, round_.state.previous) == (None, None)
    assert round_.kappa_proved == parse_rule("trimmed_mean").kappa(3, 1)


def test_a_void_round_leaves_the_state_as_it_was():
    model = torch.ones(2)
    round_, aggregated = one_round(model, torch.zeros(2, 2))
    assert aggregated is None
    assert round_.state.model is model
    assert "2 usable replies" in round_.void
    assert round_.kappa_proved is None


def test_a_step_that_overflows_makes_the_round_void_on_demand():
    model, updates = torch.full((2,), 3e38), torch.full((3, 2), 3e38)
    round_, _ = one_round(model, updates, require_finite=True)
    assert round_.void == "the new model would hold NaN or Inf"
    assert round_.state.model is model
    assert one_round(model, updates)[0].void is None


def test_a_rule_that_starts_from_its_last_output_is_given_it():
    updates = torch.tensor([[1.0, 0.0], [1.0, 2.0], [1.0, 4.0]])
    rule = "centered_clipping(tau=0.5)"
    near, _ = one_round(torch.zeros(2), updates, rule, previous=torch.tensor([1.0, 2.0]))
    far, aggregated = one_round(torch.zeros(2), updates, rule, previous=torch.tensor([90.0, 2.0]))
    assert near.state.model[0] == pytest.approx(1.0)
    assert far.state.model[0] > 50
    assert torch.equal(far.state.previous, aggregated)


def test_each_round_has_its_own_seed_for_the_rule():
    assert rule_seed(7, 4) == rule_seed(7, 4)
    assert len({rule_seed(7, 4), rule_seed(7, 5), rule_seed(8, 4)}) == 3


def test_a_rule_that_drops_rows_may_have_no_kappa_for_the_round():
    """One of eleven replies is missing, and `nnm` drops one more: what is left fits `bulyan`."""
    updates = torch.randn(10, 2, generator=torch.Generator().manual_seed(0))
    updates[3] = 1e12
    round_, aggregated = one_round(torch.zeros(2), updates, rule="nnm | bulyan", tolerated=2)
    assert round_.void is None
    assert aggregated.abs().max() < 10
    assert round_.kappa_proved is None
