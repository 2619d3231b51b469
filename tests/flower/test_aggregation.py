"""Metrics that clients claim: false ones cannot move a mean past the honest values."""

from hypothesis import given
from hypothesis import strategies as st

from fedro.flower.aggregation import flatten, robust_mean, robust_metrics


@given(
    st.lists(st.floats(0, 1), min_size=3, max_size=12),
    st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=2),
)
def test_liars_cannot_move_a_metric_past_honest_values(honest, lies):
    found = robust_mean([*honest, *lies], 2)
    if len(honest) + len(lies) <= 4:
        assert found is None
        return
    assert found.low <= found.value * (1 + 1e-12)
    assert found.value <= found.high * (1 + 1e-12)
    if len(honest) > 2 or not lies:
        assert min(honest) <= found.low
        assert found.high <= max(honest)


def test_metrics_of_few_are_left_out():
    replies = [{"acc": 0.8}, {"acc": 0.9}, {"acc": 1e300, "mine": 1.0}, {}]
    found = robust_metrics(replies, 1)
    assert {name: tuple(spread) for name, spread in found.items()} == {"acc": (0.9, 0.9, 0.9, 3)}
    assert flatten(found) == {"acc": 0.9, "acc-low": 0.9, "acc-high": 0.9}
    assert robust_metrics(replies, 2) == {}
