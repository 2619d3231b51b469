"""Mixers: they turn rows into rows that are closer together, for a rule after them."""

import numpy as np

from fedro.rules.coordinate import clip_factors
from fedro.rules.rows import Rows
from fedro.rules.table import register


@register(mixer=True, cost="n²d", source="Allouah et al. 2023")
def nnm(rows: Rows) -> Rows:
    """Each row becomes the mean of its n−b nearest rows, itself included."""
    sq = rows.sq.copy()
    np.fill_diagonal(sq, -1.0)  # itself first, also among equals
    nearest = np.argsort(sq, axis=1, kind="stable")[:, : rows.n - rows.b]
    return rows.averaged(list(np.sort(nearest, axis=1)))


@register(
    mixer=True,
    valid="any b",
    cost="nd",
    source="Karimireddy et al. 2022",
    allowed={"s": "at least 1"},
)
def bucketing(rows: Rows, *, s: int = 2) -> Rows:
    """Means of s rows each, in random order; b stays, so it must be below half of ⌈n/s⌉."""
    order = rows.rng.permutation(rows.n)
    return rows.averaged([np.sort(order[i : i + s]) for i in range(0, rows.n, s)])


@register(mixer=True, cost="nd", source="Allouah et al. 2025")
def arc(rows: Rows) -> Rows:
    """Shortens the k = ⌊2b(n−b)/n⌋ longest rows to the length of the next one."""
    rows.drop_far()  # float32 has no factor that would shorten them well
    k = 2 * rows.b * (rows.n - rows.b) // rows.n
    limit = np.sort(rows.norms)[rows.n - 1 - k]
    factors = np.ones(rows.n)
    longer = rows.norms > limit
    factors[longer] = limit / rows.norms[longer]
    return rows.scaled(factors)


@register(
    mixer=True, valid="any b", cost="nd", source="Sun et al. 2019", allowed={"limit": "above 0"}
)
def clip(rows: Rows, *, limit: float) -> Rows:
    """Shortens every row to a length of at most `limit`; no fixed limit is robust."""
    return rows.scaled(clip_factors(rows, limit))


@register(
    mixer=True,
    valid="any b",
    cost="nd",
    source="Malinovsky et al. 2024",
    reference="optional",
    allowed={"factor": "above 0"},
)
def clip_step(rows: Rows, *, factor: float = 3.0) -> Rows:
    """Shortens every row to `factor` times the length of the reference: in a run, the last step.

    A round in which the bad clients are the majority then does no more harm than a few steps. In
    the first round there is no reference, and nothing is clipped.
    """
    if rows.source.reference is None:
        return rows
    return rows.scaled(clip_factors(rows, factor * rows.reference_norm))
