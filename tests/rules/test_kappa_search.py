"""The adversary reaches the κ that a rule has, and none above a proved one."""

import numpy as np
import pytest

import fedro
from fedro.rules import parse_rule
from fedro.rules.kappa import lower_bound


def unconverged_geometric_median(x: np.ndarray) -> np.ndarray:
    """Three smoothed Weiszfeld steps from zero, as other libraries have it."""
    z = np.zeros(x.shape[1])
    for _ in range(3):
        weights = 1 / np.maximum(0.1, np.linalg.norm(x - z, axis=1))
        z = weights @ x / weights.sum()
    return z


@pytest.mark.parametrize(("n", "b"), [(26, 11), (9, 2), (5, 2)])
def test_reaches_the_exact_coefficient_of_trimmed_mean(n: int, b: int) -> None:
    worst = fedro.search_kappa(
        parse_rule("trimmed_mean", b=b), n, b, seconds=3, enough=lower_bound(n, b) * 0.999
    )
    assert 0.99 * lower_bound(n, b) <= worst.kappa <= lower_bound(n, b) * (1 + 1e-6)
    assert worst.updates.shape == (n, 2)


def test_a_rule_by_its_text() -> None:
    worst = fedro.search_kappa("trimmed_mean", 5, 2, seconds=3, enough=lower_bound(5, 2) * 0.9)
    assert isinstance(worst, fedro.WorstCase)
    assert fedro.Found is fedro.WorstCase
    assert worst.kappa >= lower_bound(5, 2) * 0.9
    with pytest.raises(ValueError, match="did you mean 'median'"):
        fedro.search_kappa("medain", 5, 2)


@pytest.mark.slow
@pytest.mark.parametrize("text", ["nnm | trimmed_mean", "krum", "geometric_median", "mva"])
def test_does_not_break_proved_bounds(text: str) -> None:
    rule = parse_rule(text, b=2)
    worst = fedro.search_kappa(rule, 9, 2, seconds=1.5)
    kappa = rule.kappa(9)
    assert kappa is not None
    assert lower_bound(9, 2) * 0.9 <= worst.kappa <= kappa * (1 + 1e-5)


def test_breaks_plain_averaging() -> None:
    worst = fedro.search_kappa(lambda x: x.mean(axis=0), 9, 2, seconds=10, enough=1e6)
    assert worst.kappa > 1e6


def test_breaks_a_rule_with_a_planted_error() -> None:
    def off_by_one(x: np.ndarray) -> np.ndarray:
        return np.sort(x, axis=0)[1:-2].mean(axis=0)  # trims one too few below

    worst = fedro.search_kappa(off_by_one, 9, 2, seconds=10, enough=100 * lower_bound(9, 2))
    assert worst.kappa > 100 * lower_bound(9, 2)


def test_breaks_an_unconverged_geometric_median() -> None:
    proved = parse_rule("geometric_median", b=2).kappa(9)
    assert proved is not None
    worst = fedro.search_kappa(unconverged_geometric_median, 9, 2, seconds=10, enough=2 * proved)
    assert worst.kappa > proved


def test_breaks_byzfls_geometric_median() -> None:
    peers = pytest.importorskip("peers")
    rule = peers.byzfl_rule("geometric_median", 2)
    worst = fedro.search_kappa(rule, 9, 2, seconds=15, enough=40.0)
    proved = parse_rule("geometric_median", b=2).kappa(9)
    assert proved is not None
    assert worst.kappa > proved


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n": 4, "b": 2}, "needs 2b < n"),
        ({"n": 4, "b": 1, "seconds": 0}, "seconds"),
        ({"n": 4, "b": 1, "dimension": 0}, "dimension"),
    ],
)
def test_bad_arguments(arguments: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fedro.search_kappa(np.mean, **arguments)  # type: ignore[arg-type]
