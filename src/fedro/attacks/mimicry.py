"""Mimic: bad clients copy an honest one, so that its data count many times over."""

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedro import kernels
from fedro.attacks import moments
from fedro.attacks.table import forge
from fedro.attacks.view import Rows, View

Floats = NDArray[np.float64]
ROUNDING = 32  # units in the last place by which products of equal rows may differ


@forge(knows="honest updates", least={"warmup": 1}, source="Karimireddy et al. 2022")
def mimic(view: View, *, warmup: int = 100) -> Tensor:
    """The update of the honest client that goes furthest in the direction where they differ most.

    For `warmup` rounds the direction is learned and the target chosen anew; then both stay. A
    target that was not sampled is replaced by the best one that was. Only rounds with a bad and
    an honest client count, since only there the attackers see something.
    """
    seen = int(view.memory.get("mimic.rounds", torch.tensor(0)))
    rows, scores = learn(view, seen) if seen < warmup else (view.finite, None)
    ids = view.ids[rows]
    if scores is None and int(view.memory["mimic.target"]) not in ids:
        direction = view.memory["mimic.direction"]
        scores = kernels.facts(view.updates, direction, rows=rows).dots
    if scores is not None:
        view.memory["mimic.target"] = torch.tensor(int(ids[np.argmax(scores)]))
    view.memory["mimic.rounds"] = torch.tensor(seen + 1)
    target = np.flatnonzero(ids == int(view.memory["mimic.target"]))[0]
    return view.updates[int(rows[target])]


def learn(view: View, seen: int) -> tuple[Rows, Floats]:
    """A step of the running mean μ, and one of z to the main direction around it.

    With s = Σ((g_i−μ)·z)(g_i−μ) over the honest g_i, z becomes (1−share)·z + share·s/‖s‖,
    normalized; where they do not differ by more than rounding, it stays. Return the finite rows
    and how far they go along z.
    """
    share = 1 / (seen + 1)
    z = view.memory["mimic.direction"] if seen else unit(view.noise())
    rows, mean, dots, offset = step(view, z, share)
    if differ(dots - offset, dots, view.updates.dtype):
        z, dots = turned(view, rows, mean, z, dots, dots - offset, share)
    view.memory["mimic.mean"], view.memory["mimic.direction"] = mean, z
    return rows, dots


def differ(along: Floats, dots: Floats, dtype: torch.dtype) -> bool:
    """Do the rows go along z by amounts that differ from the mean's by more than rounding?"""
    return bool(np.abs(along).max() > ROUNDING * torch.finfo(dtype).eps * np.abs(dots).max())


def turned(
    view: View, rows: Rows, mean: Tensor, z: Tensor, dots: Floats, along: Floats, share: float
) -> tuple[Tensor, Floats]:
    """z after its step to s/‖s‖, and how far the rows go along it; s itself makes room for z."""
    most, numbers = float(np.abs(along).max()), torch.finfo(view.updates.dtype)
    weights = along / most  # no sum is too large
    plus = (-float(weights.sum()), mean)
    s, on_s, squared, _ = kernels.blend(view.updates, weights, plus=plus, rows=rows)
    length = math.sqrt(max(squared, 0.0))
    if not numbers.tiny < length < numbers.max:
        return z, dots
    cosine = float(weights @ along) / length  # z·s/‖s‖, at least 0
    norm = math.sqrt((1 - share) ** 2 + 2 * share * (1 - share) * cosine + share**2)
    of_z, of_s = (1 - share) / norm, share / (norm * length)
    return s.mul_(of_s).add_(z.to(s), alpha=of_z), of_z * dots + of_s * on_s


def step(view: View, z: Tensor, share: float) -> tuple[Rows, Tensor, Floats, float]:
    """The finite rows, μ after a step to their mean, g_i·z and μ·z: one pass."""
    rows = np.asarray(view.honest, dtype=np.int64)
    plus = (1 - share, view.memory["mimic.mean"]) if share < 1 else None
    while True:  # ends: an attacker is asked only if an honest row is finite
        weights = np.full(rows.size, share / rows.size)
        mean, dots, own, finite = kernels.blend(view.updates, weights, z, plus=plus, rows=rows)
        if finite.all():
            return rows, mean, dots, own
        rows = rows[finite]


def unit(vector: Tensor) -> Tensor:
    """Scale the vector to length 1, in place."""
    return vector.div_(moments.length(vector))
