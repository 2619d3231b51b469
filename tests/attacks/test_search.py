"""The search for the best strength, on curves whose maximum is known."""

import math

import pytest

from fedro.attacks.search import OCTAVES, Response, find_peaks, golden_section


@pytest.mark.parametrize("top", [-300.0, -0.03, 0.02, 1.0, 7.3, 900.0])
def test_the_search_finds_a_peak(top: float) -> None:
    def smooth(t: float) -> Response:
        return Response(math.exp(-(math.log(abs(t / top)) ** 2)) * (t * top > 0), t)

    found = find_peaks(smooth, 1.0)[0]
    assert found.strength == pytest.approx(top, rel=0.05)
    assert found.distance > 0.998


@pytest.mark.parametrize("top", [-300.0, -0.03, 0.02, 1.0, 7.3, 900.0])
@pytest.mark.parametrize("plateau", [0.1, 0.9])
def test_the_search_finds_a_cliff(top: float, plateau: float) -> None:
    def cliff(t: float) -> Response:
        follows = 0 <= t / top <= 1
        return Response(t / top if follows else plateau, t, share=float(follows))

    assert find_peaks(cliff, 1.0)[0].distance > 0.99


@pytest.mark.parametrize("top", [1.03, 1.5, 1.83, 1.97])
@pytest.mark.parametrize("stages", [[0.5, 0.33, 0.17, 0.08], [0.5, 0.25, 0.125], [0.26, 0.21, 0.0]])
def test_the_search_finds_the_first_of_several_cliffs(top: float, stages: list[float]) -> None:
    """Copies of a message are dropped one after the other."""

    def staged(t: float) -> Response:
        share = stages[min(int(max(t / top - 1, 0) * 20), len(stages) - 1)] if t > 0 else 0.0
        return Response(share * t, t, share)

    assert find_peaks(staged, 1.0)[0].distance > 0.99 * stages[0] * top


def test_the_search_finds_where_a_message_is_accepted_again() -> None:
    def again(t: float) -> Response:
        share = float(0 < t < 1.19 or 1.25 < t < 1.32)
        return Response(share * t, t, share)

    assert find_peaks(again, 1.0)[0].distance > 0.99 * 1.32


def test_a_smooth_curve_takes_few_evaluations() -> None:
    """A share that falls as one over the strength has no edge; each look may cost much."""
    seen = []

    def smooth(t: float) -> Response:
        seen.append(t)
        return Response(abs(t) / (1 + abs(t)), t, share=1 / (1 + abs(t)))

    assert find_peaks(smooth, 1.0)[0].distance > 0.99
    assert len(seen) < 75


def test_the_search_takes_the_highest_of_several() -> None:
    def hills(t: float) -> Response:
        return Response(math.exp(-((t - 3) ** 2)) + 1.5 * math.exp(-((t + 40) ** 2) / 99), t)

    found = find_peaks(hills, 1.0)
    assert found[0].strength == pytest.approx(-40, rel=0.02)
    assert found == sorted(found, reverse=True)


def test_the_search_of_something_flat_or_growing() -> None:
    assert find_peaks(lambda t: Response(0.0, t), 1.0)[0].distance == 0.0
    assert find_peaks(lambda t: Response(abs(t), t), 2.0)[0].distance == 2.0 * 2 ** OCTAVES[1]
    assert golden_section(
        lambda t: Response(0.5, t), Response(0.1, 1.0), Response(3.0, 9.0), Response(0.1, 2.0)
    ) == Response(3.0, 9.0)


def test_a_slope_is_not_taken_for_a_cliff() -> None:
    """Weights 1/distance leave half of the share with each octave, and have no edge."""
    looks = []

    def gentle(t: float) -> Response:
        looks.append(t)
        share = 1 / (1 + abs(t))
        return Response(abs(t) * share, t, share)

    def steep(t: float) -> Response:
        share = 1.0 if abs(t) < 3.3 else 0.5 if abs(t) < 7.7 else 0.0
        return Response(abs(t) * share, t, share)

    assert find_peaks(gentle, 1.0)[0].distance > 0.999
    assert len(looks) < 75
    assert find_peaks(steep, 1.0)[0].distance == pytest.approx(7.7 / 2, rel=0.01)
