"""Mimic: Byzantine clients copy an honest one, so that its data count several times."""

import math

import numpy as np
import torch
from torch import Tensor

from fedro import kernels
from fedro.attacks.dispersion import Floats, RowNumbers, length
from fedro.attacks.registration import forge
from fedro.attacks.view import View
from fedro.common.options import AT_LEAST_ONE

ROUNDING_UNITS = 32  # units in the last place by which products of equal rows may differ


@forge(knows="honest updates", ranges={"warmup": AT_LEAST_ONE}, source="Karimireddy et al. 2022")
def mimic(view: View, *, warmup: int = 100) -> Tensor:
    """Send the update of the honest client that is furthest along the axis of largest variance.

    During the first `warmup` rounds the attackers learn that direction and choose the target
    anew each time. Afterwards both stay; if the target is not sampled, the best client that is
    sampled becomes the target. Only rounds with a Byzantine and an honest client count, since only
    there the attackers see something.

    Args:
        warmup: Number of rounds in which the direction is learned, at least 1.

    Example:
        >>> str(mimic(warmup=20))
        'mimic(warmup=20)'
    """
    rounds = int(view.memory.get("mimic.rounds", torch.tensor(0)))
    rows, scores = _learn(view, rounds) if rounds < warmup else (view.finite_honest, None)
    ids = view.ids[rows]
    if scores is None and int(view.memory["mimic.target"]) not in ids:
        direction = view.memory["mimic.direction"]
        scores = kernels.facts(view.updates, direction, rows=rows).dots
    if scores is not None:
        view.memory["mimic.target"] = torch.tensor(int(ids[np.argmax(scores)]))
    view.memory["mimic.rounds"] = torch.tensor(rounds + 1)
    target = np.flatnonzero(ids == int(view.memory["mimic.target"]))[0]
    return view.updates[int(rows[target])]


def _learn(view: View, rounds: int) -> tuple[RowNumbers, Floats]:
    """Move the running mean μ, and the unit vector z to the main direction around it.

    With s = Σ((g_i−μ)·z)(g_i−μ) over the honest g_i, z becomes (1−share)·z + share·s/‖s‖,
    normalized. It stays where the g_i differ by no more than rounding. Return the finite rows and
    their products with z.
    """
    share = 1 / (rounds + 1)
    z = view.memory["mimic.direction"] if rounds else _unit(view.noise())
    rows, mean, dots, of_mean = _move_mean(view, z, share)
    if _differ(dots - of_mean, dots, view.updates.dtype):
        z, dots = _turn(view, rows, mean, z, dots, dots - of_mean, share)
    view.memory["mimic.mean"], view.memory["mimic.direction"] = mean, z
    return rows, dots


def _differ(projections: Floats, dots: Floats, dtype: torch.dtype) -> bool:
    """Return whether the rows differ from the mean along z by more than rounding."""
    rounding = ROUNDING_UNITS * torch.finfo(dtype).eps * np.abs(dots).max()
    return bool(np.abs(projections).max() > rounding)


def _turn(
    view: View,
    rows: RowNumbers,
    mean: Tensor,
    z: Tensor,
    dots: Floats,
    projections: Floats,
    share: float,
) -> tuple[Tensor, Floats]:
    """Return z after its step to s/‖s‖, and the rows' products with it; reuses s's memory."""
    numbers = torch.finfo(view.updates.dtype)
    weights = projections / float(np.abs(projections).max())  # no sum overflows
    plus = (-float(weights.sum()), mean)
    s, on_s, squared, _ = kernels.blend(view.updates, weights, plus=plus, rows=rows)
    norm_of_s = math.sqrt(max(squared, 0.0))
    if not numbers.tiny < norm_of_s < numbers.max:
        return z, dots
    cosine = float(weights @ projections) / norm_of_s  # z·s/‖s‖, at least 0
    norm = math.sqrt((1 - share) ** 2 + 2 * share * (1 - share) * cosine + share**2)
    of_z, of_s = (1 - share) / norm, share / (norm * norm_of_s)
    return s.mul_(of_s).add_(z.to(s), alpha=of_z), of_z * dots + of_s * on_s


def _move_mean(view: View, z: Tensor, share: float) -> tuple[RowNumbers, Tensor, Floats, float]:
    """Return the finite rows, μ after a step to their mean, g_i·z and μ·z, in one pass."""
    rows = np.asarray(view.honest, dtype=np.int64)
    plus = (1 - share, view.memory["mimic.mean"]) if share < 1 else None
    while True:  # ends, since the attack is called only if an honest row is finite
        weights = np.full(rows.size, share / rows.size)
        mean, dots, of_mean, finite = kernels.blend(view.updates, weights, z, plus=plus, rows=rows)
        if finite.all():
            return rows, mean, dots, of_mean
        rows = rows[finite]


def _unit(vector: Tensor) -> Tensor:
    """Scale the vector to length 1, in place."""
    return vector.div_(length(vector))
