"""Scores of a model on test data, and the error of an aggregate."""

import numpy as np
import pytest
import torch

from fedro.server import aggregation_error, score_examples


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


def test_a_loss_that_is_not_finite_is_nan():
    assert np.isnan(score_examples(np.array([1.0, np.inf]), None, np.array([0, 0])).loss)
    assert score_examples(np.array([1.0, 2.0]), None, np.array([0, 0])).loss == 1.5
