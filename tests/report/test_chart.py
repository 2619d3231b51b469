"""Thinning of long lines."""

from hypothesis import given
from hypothesis import strategies as st

from fedro.report.chart import Chart, Panel, Section, Trace, thin_sections


@given(st.integers(2, 300), st.integers(2, 100))
def test_thinning_keeps_points_together(count: int, most: int) -> None:
    x = list(range(count))
    trace = Trace(
        "a", x, [float(i) for i in x], low=[i - 1.0 for i in x], high=[i + 1.0 for i in x]
    )
    axis = Panel("", [], None, None)  # type: ignore[arg-type]
    whole = Section(
        "s", "t", "l", charts=[Chart("c", "t", "", [Panel("", [trace], axis.x, axis.y)])]
    )
    (thin,) = thin_sections([whole], most)
    kept = thin.charts[0].panels[0].traces[0]  # type: ignore[union-attr]
    assert len(kept.x) == min(count, most)
    assert (kept.x[0], kept.x[-1]) == (0, count - 1)
    assert kept.low is not None
    assert all(
        a == b == c + 1
        for a, b, c in zip(kept.x, kept.y, kept.low, strict=True)  # type: ignore[operator]
    )
