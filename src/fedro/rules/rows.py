"""The rows a stage works on, as affine combinations of the original ones.

A mixer never touches the (n, d) matrix: it only says how its rows come from the rows before. Every
squared distance and norm of mixed rows follows from those of the original rows, so a pipeline
of any length reads the data once for the distances and once for its result.
"""

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedro import kernels

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

FAR = 2.0**20  # times the smallest radius that holds n−b rows: further off, a row is dropped


class Dropped(Exception):  # noqa: N818 (not an error: the caller goes on without these rows)
    """Some rows are not finite, or too far from all others to be honest."""

    def __init__(self, keep: Mask) -> None:
        super().__init__("rows to be dropped")
        self.keep = keep


class Source:
    """The picked original rows: small facts about them, and what is made of them.

    Everything a rule knows of the data comes through here.
    """

    def __init__(self, updates: Any, picked: NDArray[np.intp], b: int, reference: Any) -> None:
        self.updates = updates
        self.picked = picked
        self.b = b
        self.reference = reference
        self.progress: kernels.Progress = None

    def keep(self, mask: Mask) -> "Source":
        """Without some rows; each dropped one was bad, so b falls with n. Known facts are kept."""
        kept = copy(self)
        kept.picked, kept.b = self.picked[mask], self.b - int((~mask).sum())
        if "sq" in vars(self):
            vars(kept)["sq"] = self.sq[np.ix_(mask, mask)]
        if "facts" in vars(self):
            vars(kept)["facts"] = self.facts.only(mask)
        return kept

    @property
    def width(self) -> int:
        """How many columns there are."""
        return int(self.updates.shape[1])

    @cached_property
    def sq(self) -> Floats:
        """‖x_i − x_j‖² (n, n)."""
        value: Floats
        value, finite = kernels.distances(self.updates, rows=self.picked, progress=self.progress)
        vars(self)["sq"] = value  # kept by `keep`, should rows be dropped
        self.require(finite)
        return value

    @cached_property
    def facts(self) -> kernels.Facts:
        """Norms, and products with and distances to the reference."""
        value = kernels.facts(
            self.updates, self.reference, rows=self.picked, progress=self.progress
        )
        vars(self)["facts"] = value
        self.require(value.finite & np.isfinite(value.squared) & np.isfinite(value.gaps))
        return value

    @cached_property
    def reference_norm(self) -> float:
        """‖r‖."""
        if self.reference is None:
            return 0.0
        return float(np.sqrt(kernels.facts(self.reference[None, :]).squared[0]))

    def combine(self, weights: Floats, of_reference: float) -> Any:
        """Σ weights_i·x_i + of_reference·r, reading only rows that have a weight."""
        value, finite = kernels.combine(
            self.updates, weights, rows=self.picked, progress=self.progress
        )
        self.require(finite)
        if of_reference and self.reference is not None:
            value = value + float(of_reference) * self.reference  # a plain float keeps dtypes
        return value

    def band(self, low: int, high: int, **options: Any) -> Any:
        """What the kernel of this name gives."""
        options = {"rows": self.picked, "progress": self.progress, **options}
        value, finite = kernels.band(self.updates, low, high, **options)
        self.require(finite)
        return value

    def columns(self, index: NDArray[np.intp]) -> Floats:
        """The rows at some columns, (n, k)."""
        return kernels.columns(self.updates, index, rows=self.picked)

    def gaps_to(self, weights: Floats, of_reference: float) -> tuple[Floats, float]:
        """‖x_i − z‖² and ‖z‖² for the point z that `combine` gives."""
        point = self.combine(weights, of_reference)
        gaps = kernels.facts(self.updates, point, rows=self.picked).gaps
        return gaps, float(kernels.facts(point[None, :]).squared[0])

    def require(self, keep: Mask) -> None:
        """Go on only if every row may stay."""
        if not keep.all():
            raise Dropped(keep)

    def require_near(self, sq: Floats) -> None:
        """Drop what is beyond FAR times the smallest ball that holds n−b rows (at most b are)."""
        radii = np.partition(sq, len(self.picked) - self.b - 1, axis=1)
        radius = radii[:, len(self.picked) - self.b - 1]
        center = int(np.argmin(radius))
        self.require(sq[center] <= FAR**2 * radius[center])


@dataclass(frozen=True)
class Rows:
    """What a stage sees: n rows of which b may be bad, and facts about them."""

    source: Source
    seed: int = 0
    sizes: Floats | None = None  # the callers' weights of the rows, if any
    affine: Floats | None = None  # (n, original n); what a row lacks to 1 is on the origin
    scale: Floats | None = None  # how a kernel makes the rows: scaled, then averaged by lists,
    lists: Sequence[NDArray[np.intp]] | None = None  # unless a longer pipeline needs `affine`
    simple: bool = True

    @property
    def b(self) -> int:
        """How many rows may be bad."""
        return self.source.b

    @property
    def n(self) -> int:
        """How many rows there are."""
        return len(self.source.picked) if self.affine is None else len(self.affine)

    @cached_property
    def rng(self) -> np.random.Generator:
        """For rules that draw at random."""
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
        """Go on without original rows that are FAR times longer than the n−b shortest."""
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
    def reference_norm(self) -> float:
        """‖r‖."""
        return self.source.reference_norm

    def sq_to(self, weights: Floats, of_reference: float = 0.0) -> Floats:
        """‖x_i − z‖² for the point z = Σ weights_i·x_i + …, from the data itself."""
        return self._sq_to(*self.source.gaps_to(self._original(weights), of_reference))

    def columns(self, most: int) -> Floats:
        """The rows at some random columns, (n, k)."""
        source, d = self.source, self.source.width
        index = np.sort(self.rng.choice(d, size=min(most, d), replace=False))
        sample = source.columns(index)
        with np.errstate(over="ignore"):
            source.require(np.asarray(np.isfinite((sample**2).sum(axis=1))))
        return sample if self.affine is None else np.asarray(self.affine @ sample)

    def _original(self, weights: Floats) -> Floats:
        """Weights of the rows as weights of the original ones."""
        return weights if self.affine is None else np.asarray(weights @ self.affine)

    def _sq_to(self, originals: Floats, origin: float) -> Floats:
        """Squared distances to a point, from those of the original rows and of the origin to it."""
        if self.affine is None:
            return originals
        a, points = self._points()
        reached = np.append(originals, origin)
        own = np.einsum("ij,jk,ik->i", a, points, a)
        return np.asarray(np.maximum(a @ reached - 0.5 * own, 0.0))

    def _points(self) -> tuple[Floats, Floats]:
        """The rows on the original rows and the origin (n, m+1), and these points' distances.

        Rows that are averages have nothing on the origin; then its distances are not asked for.
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

    def scaled(self, factors: Floats) -> "Rows":
        """Each row times its factor."""
        affine = factors[:, None] * (np.eye(self.n) if self.affine is None else self.affine)
        simple = self.simple and self.lists is None
        scale = factors if self.scale is None else factors * self.scale
        return replace(self, affine=affine, scale=scale if simple else None, simple=simple)

    def averaged(self, lists: Sequence[NDArray[np.intp]]) -> "Rows":
        """Row i becomes the mean of the rows in lists[i]."""
        share = np.zeros((len(lists), self.n))
        for row, part in zip(share, lists, strict=True):
            row[part] = 1.0 / len(part)
        simple = self.simple and self.lists is None
        affine = share if self.affine is None else share @ self.affine
        return replace(self, affine=affine, lists=lists if simple else None, simple=simple)

    def mean_of(self, selected: NDArray[Any]) -> Floats:
        """The weights of the mean of some rows: by size, where the caller gave sizes."""
        weights = np.zeros(self.n)
        weights[selected] = 1.0 if self.sizes is None else self.sizes[selected]
        return np.asarray(weights / weights.sum())

    def only(self, picks: NDArray[np.intp]) -> "Rows":
        """Some of the rows."""
        return self.averaged([np.array([pick]) for pick in picks])

    def combine(self, weights: Floats, of_reference: float = 0.0) -> Any:
        """Σ weights_i·row_i (+ a share of the reference)."""
        return self.source.combine(self._original(weights), of_reference)

    def band(self, low: int, high: int, nearest: int | None = None) -> Any:
        """Per column the mean of order statistics low..high−1, or of those nearest the median."""
        mixing = self.lists if self.simple else self.affine
        return self.source.band(low, high, nearest=nearest, mixing=mixing, scale=self.scale)


def _distances(products: Floats) -> Floats:
    """‖y_i − y_j‖² = P_ij − ½(P_ii + P_jj) for P = A·D·Aᵀ, A affine, D squared distances."""
    own = 0.5 * np.diag(products)
    sq = np.maximum(products - own[:, None] - own[None, :], 0.0)
    sq = 0.5 * (sq + sq.T)
    np.fill_diagonal(sq, 0.0)
    return sq
