"""Rows of updates, as the stages of a rule see them.

A stage asks for numbers about the rows (`Rows.sq`, `Rows.norms`, …) and says what to make of them:
a mixer returns new rows (`Rows.averaged`, `Rows.scaled`), a rule returns a weighted sum
(`Rows.combine`) or a mean of order statistics (`Rows.band`).

The matrix X of updates (m, d) is large, so mixers never write a new one. Mixed rows are kept as
affine combinations of the original rows x_1, …, x_m and of the origin::

    y_i = Σ_j A_ij·x_j + (1 − Σ_j A_ij)·0        A is `AffineRows.affine`, (n, m)

Then every number that a stage asks for follows from numbers about the original rows:

- A weighted sum: Σ_i w_i·y_i = Σ_j (w·A)_j·x_j, which is one pass over the data.
- Squared distances to a point z: Let D_jk = ‖p_j − p_k‖² for the points p = (x_1, …, x_m, 0), let
  ρ_j = ‖p_j − z‖², and let a be the row of A for y_i, completed to sum 1. Then
  ‖y_i − z‖² = a·ρ − ½·aᵀDa.
- Squared distances between mixed rows: ‖y_i − y_k‖² = a_iᵀDa_k − ½·a_iᵀDa_i − ½·a_kᵀDa_k.

So a pipeline of any length reads the data once for D and once for its result. `RowSource` measures
the original rows. `AffineRows` does the algebra and implements the protocol `Rows`.
"""

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fedro import kernels

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

FAR = 2.0**20  # times the smallest radius that holds n−b rows: further off, a row is dropped


class Rows(Protocol):
    """What a stage may ask of the rows: n rows of width d, of which b may be Byzantine.

    Numbers are computed when first asked for and then kept. Asking for them may remove rows that
    are not finite or much too far off to be honest; the pipeline then starts again without them.

    Example::

        def medoid(rows: Rows) -> Any:
            scores = np.sqrt(rows.sq).sum(axis=1)
            return rows.combine(np.eye(rows.n)[np.argmin(scores)])
    """

    @property
    def n(self) -> int:
        """Number of rows."""

    @property
    def b(self) -> int:
        """Number of rows that may be Byzantine."""

    @property
    def rng(self) -> np.random.Generator:
        """Random generator, for rules that draw at random."""

    @property
    def sq(self) -> Floats:
        """‖x_i − x_j‖², the squared distances between all rows (n, n)."""

    @property
    def norms(self) -> Floats:
        """‖x_i‖, the lengths of the rows (n,)."""

    @property
    def has_reference(self) -> bool:
        """Whether the caller gave a trusted reference r. Without one, r is zero."""

    @property
    def reference_norm(self) -> float:
        """‖r‖, the length of the reference."""

    @property
    def reference_dot(self) -> Floats:
        """x_i·r, the inner products with the reference (n,)."""

    @property
    def reference_sq(self) -> Floats:
        """‖x_i − r‖², the squared distances to the reference (n,)."""

    def sq_to(self, weights: Floats, of_reference: float = 0.0) -> Floats:
        """Return ‖x_i − z‖² for z = Σ weights_i·x_i + of_reference·r, measured on the data (n,)."""

    def columns(self, count: int) -> Floats:
        """Return the rows at `count` random columns, or at all if there are fewer (n, k)."""

    def mean_of(self, selected: NDArray[Any]) -> Floats:
        """Return the weights of the mean of some rows (n,), by data-set size if sizes are given.

        `selected` holds positions, or a bool for each row.
        """

    def drop_far(self) -> None:
        """Remove original rows that are 2²⁰ times longer than the longest of the n−b shortest."""

    def scaled(self, factors: Floats) -> "Rows":
        """Return each row times its factor. For mixers."""

    def averaged(self, lists: Sequence[NDArray[np.intp]]) -> "Rows":
        """Return new rows: row i is the mean of the rows at the positions lists[i]. For mixers."""

    def only(self, picks: NDArray[np.intp]) -> "Rows":
        """Return the rows at some positions."""

    def combine(self, weights: Floats, of_reference: float = 0.0) -> Any:
        """Return Σ weights_i·x_i + of_reference·r, a vector (d,). For rules."""

    def band(self, low: int, high: int, nearest: int | None = None) -> Any:
        """Return per column the mean of the order statistics low, …, high−1, a vector (d,).

        With `nearest`, of these the mean of the `nearest` ones that are nearest the median.
        """


class NoAggregateError(ValueError):
    """A rule has no robust answer for these rows: the server leaves the model as it is.

    Rules raise it if they get too few rows for b, or if more than b rows cannot be honest. A rule
    of your own may raise it too. Every other exception in a rule is an error and stops the run.

    Example:
        >>> import numpy as np
        >>> from fedro.rules import NoAggregateError, bulyan
        >>> try:
        ...     bulyan(b=2)(np.zeros((9, 4)))
        ... except NoAggregateError as error:
        ...     print(error)
        bulyan with n=9 rows and b=2: needs n ≥ 4b+3
    """


class DroppedRows(Exception):  # noqa: N818 (not an error: the caller goes on without these rows)
    """Some rows are not finite, or too far from all others to be honest."""

    def __init__(self, keep: Mask) -> None:
        super().__init__("rows to be dropped")
        self.keep = keep


@dataclass
class MeasurementCache:
    """Measurements of the original rows, made once; `keep` cuts them down to fewer rows."""

    sq: Floats | None = None
    facts: kernels.Facts | None = None

    def keep(self, mask: Mask) -> "MeasurementCache":
        """Return the measurements of some of the rows."""
        return MeasurementCache(
            sq=None if self.sq is None else self.sq[np.ix_(mask, mask)],
            facts=None if self.facts is None else self.facts.only(mask),
        )


class RowSource:
    """The original rows: everything a rule learns about the data comes from here.

    Subclasses may know the rows by other means than a matrix in memory.
    """

    def __init__(self, updates: Any, picked: NDArray[np.intp], b: int, reference: Any) -> None:
        self.updates = updates
        self.picked = picked
        self.b = b
        self.reference = reference
        self.progress: kernels.Progress = None
        self._cache = MeasurementCache()

    def keep(self, mask: Mask) -> "RowSource":
        """Return the source without some rows. These were Byzantine, so b falls with n."""
        kept = copy(self)
        kept.picked, kept.b = self.picked[mask], self.b - int((~mask).sum())
        kept._cache = self._cache.keep(mask)
        return kept

    @property
    def width(self) -> int:
        """Number of columns."""
        return int(self.updates.shape[1])

    @property
    def sq(self) -> Floats:
        """‖x_i − x_j‖² (n, n)."""
        if self._cache.sq is None:
            self._cache.sq, finite = self.measure_distances()
            self.require(finite)
        return self._cache.sq

    @property
    def facts(self) -> kernels.Facts:
        """Norms, and products with and distances to the reference."""
        if self._cache.facts is None:
            self._cache.facts = facts = self.measure_facts()
            self.require(facts.finite & np.isfinite(facts.squared) & np.isfinite(facts.gaps))
        return self._cache.facts

    def measure_distances(self) -> tuple[Floats, Mask]:
        """Compute ‖x_i − x_j‖² (n, n), and which rows are finite (n,)."""
        return kernels.distances(self.updates, rows=self.picked, progress=self.progress)

    def measure_facts(self) -> kernels.Facts:
        """Compute norms, and products with and distances to the reference."""
        return kernels.facts(self.updates, self.reference, rows=self.picked, progress=self.progress)

    @cached_property
    def reference_norm(self) -> float:
        """‖r‖."""
        if self.reference is None:
            return 0.0
        return float(np.sqrt(kernels.facts(self.reference[None, :]).squared[0]))

    def combine(self, weights: Floats, of_reference: float) -> Any:
        """Return Σ weights_i·x_i + of_reference·r, reading only rows that have a weight."""
        value, finite = kernels.combine(
            self.updates, weights, rows=self.picked, progress=self.progress
        )
        self.require(finite)
        if of_reference and self.reference is not None:
            value = value + float(of_reference) * self.reference  # a plain float keeps dtypes
        return value

    def band(self, low: int, high: int, **options: Any) -> Any:
        """Return per column the mean of order statistics, as `kernels.band` does."""
        options = {"rows": self.picked, "progress": self.progress, **options}
        value, finite = kernels.band(self.updates, low, high, **options)
        self.require(finite)
        return value

    def columns(self, index: NDArray[np.intp]) -> Floats:
        """Return the rows at some columns, (n, k)."""
        return kernels.columns(self.updates, index, rows=self.picked)

    def gaps_to(self, weights: Floats, of_reference: float) -> tuple[Floats, float]:
        """Return ‖x_i − z‖² (n,) and ‖z‖² for the point z that `combine` returns."""
        point = self.combine(weights, of_reference)
        gaps = kernels.facts(self.updates, point, rows=self.picked).gaps
        return gaps, float(kernels.facts(point[None, :]).squared[0])

    def require(self, keep: Mask) -> None:
        """Raise `DroppedRows` unless every row may stay."""
        if not keep.all():
            raise DroppedRows(keep)

    def require_near(self, sq: Floats) -> None:
        """Drop rows further off than FAR times the smallest ball that holds n−b rows.

        There are at most b of them.
        """
        radii = np.partition(sq, len(self.picked) - self.b - 1, axis=1)
        radius = radii[:, len(self.picked) - self.b - 1]
        center = int(np.argmin(radius))
        self.require(sq[center] <= FAR**2 * radius[center])


@dataclass(frozen=True)
class AffineRows:
    """Rows as affine combinations of the original rows; implements `Rows`.

    The kernel for order statistics can scale the original rows and average lists of them as it
    goes. Rows are `simple` while they are made by at most one scaling and then at most one
    averaging; that kernel then takes `scale` and `lists`. Otherwise it takes `affine`.
    """

    source: RowSource
    seed: int = 0
    sizes: Floats | None = None  # data-set sizes of the rows, if the caller gave any
    affine: Floats | None = None  # A, (n, m); None means that these are the original rows
    scale: Floats | None = None
    lists: Sequence[NDArray[np.intp]] | None = None
    simple: bool = True

    @property
    def b(self) -> int:
        """Number of rows that may be Byzantine."""
        return self.source.b

    @property
    def n(self) -> int:
        """Number of rows."""
        return len(self.source.picked) if self.affine is None else len(self.affine)

    @cached_property
    def rng(self) -> np.random.Generator:
        """Random generator, for rules that draw at random."""
        return np.random.default_rng(self.seed)

    @cached_property
    def sq(self) -> Floats:
        """Squared distances (n, n)."""
        self.source.require_near(self.source.sq)
        if self.affine is None:
            return self.source.sq
        a, points = self._points()
        return _distances(a @ points @ a.T)

    @cached_property
    def norms(self) -> Floats:
        """‖x_i‖ (n,)."""
        return np.sqrt(self._sq_to(self.source.facts.squared, 0.0))

    def drop_far(self) -> None:
        """Drop original rows that are FAR times longer than the n−b shortest."""
        squared = self.source.facts.squared
        last = len(squared) - self.b - 1
        self.source.require(squared <= FAR**2 * np.partition(squared, last)[last])

    @cached_property
    def reference_dot(self) -> Floats:
        """x_i·r (n,)."""
        dots = self.source.facts.dots
        return dots if self.affine is None else self.affine @ dots

    @cached_property
    def reference_sq(self) -> Floats:
        """‖x_i − r‖² (n,)."""
        return self._sq_to(self.source.facts.gaps, self.reference_norm**2)

    @property
    def has_reference(self) -> bool:
        """Whether the caller gave a trusted reference."""
        return self.source.reference is not None

    @property
    def reference_norm(self) -> float:
        """‖r‖."""
        return self.source.reference_norm

    def sq_to(self, weights: Floats, of_reference: float = 0.0) -> Floats:
        """Return ‖x_i − z‖² for z = Σ weights_i·x_i + of_reference·r, measured on the data."""
        return self._sq_to(*self.source.gaps_to(self._original(weights), of_reference))

    def columns(self, count: int) -> Floats:
        """Return the rows at `count` random columns, (n, k)."""
        source, d = self.source, self.source.width
        index = np.sort(self.rng.choice(d, size=min(count, d), replace=False))
        sample = source.columns(index)
        with np.errstate(over="ignore"):
            source.require(np.asarray(np.isfinite((sample**2).sum(axis=1))))
        return sample if self.affine is None else np.asarray(self.affine @ sample)

    def _original(self, weights: Floats) -> Floats:
        """Weights of the original rows: w·A."""
        return weights if self.affine is None else np.asarray(weights @ self.affine)

    def _sq_to(self, originals: Floats, origin: float) -> Floats:
        """‖y_i − z‖² = a·ρ − ½·aᵀDa, where ρ is `originals` and then `origin`, z's distances."""
        if self.affine is None:
            return originals
        a, points = self._points()
        reached = np.append(originals, origin)
        own = np.einsum("ij,jk,ik->i", a, points, a)
        return np.asarray(np.maximum(a @ reached - 0.5 * own, 0.0))

    def _points(self) -> tuple[Floats, Floats]:
        """A completed to row sums of 1 (n, m+1), and D, the points' squared distances (m+1, m+1).

        Averages have no weight on the origin. Then the origin's distances, which would cost a pass
        over the data, are not needed.
        """
        assert self.affine is not None
        rest = 1.0 - self.affine.sum(axis=1)
        m = self.affine.shape[1]
        points = np.zeros((m + 1, m + 1))
        points[:m, :m] = self.source.sq
        rest[np.abs(rest) < 1e-12] = 0.0
        if rest.any():
            points[m, :m] = points[:m, m] = self.source.facts.squared
        return np.column_stack([self.affine, rest]), points

    def scaled(self, factors: Floats) -> "AffineRows":
        """Return each row times its factor."""
        affine = factors[:, None] * (np.eye(self.n) if self.affine is None else self.affine)
        if not self.simple or self.lists is not None:
            return replace(self, affine=affine, scale=None, lists=None, simple=False)
        return replace(
            self, affine=affine, scale=factors * (1 if self.scale is None else self.scale)
        )

    def averaged(self, lists: Sequence[NDArray[np.intp]]) -> "AffineRows":
        """Return new rows: row i is the mean of the rows at the positions lists[i]."""
        share = np.zeros((len(lists), self.n))
        for row, part in zip(share, lists, strict=True):
            row[part] = 1.0 / len(part)
        affine = share if self.affine is None else share @ self.affine
        if not self.simple or self.lists is not None:
            return replace(self, affine=affine, scale=None, lists=None, simple=False)
        return replace(self, affine=affine, lists=lists)

    def mean_of(self, selected: NDArray[Any]) -> Floats:
        """Return the weights of the mean of some rows: by size, where the caller gave sizes."""
        weights = np.zeros(self.n)
        weights[selected] = 1.0 if self.sizes is None else self.sizes[selected]
        return np.asarray(weights / weights.sum())

    def only(self, picks: NDArray[np.intp]) -> "AffineRows":
        """Return the rows at some positions."""
        return self.averaged([np.array([pick]) for pick in picks])

    def combine(self, weights: Floats, of_reference: float = 0.0) -> Any:
        """Return Σ weights_i·y_i + of_reference·r."""
        return self.source.combine(self._original(weights), of_reference)

    def band(self, low: int, high: int, nearest: int | None = None) -> Any:
        """Return per column the mean of order statistics, as described in `Rows`."""
        mixing = self.lists if self.simple else self.affine
        return self.source.band(low, high, nearest=nearest, mixing=mixing, scale=self.scale)


def _distances(products: Floats) -> Floats:
    """‖y_i − y_j‖² = P_ij − ½(P_ii + P_jj) for P = A·D·Aᵀ."""
    own = 0.5 * np.diag(products)
    sq = np.maximum(products - own[:, None] - own[None, :], 0.0)
    sq = 0.5 * (sq + sq.T)
    np.fill_diagonal(sq, 0.0)
    return sq
