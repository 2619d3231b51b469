"""Mimic: bad clients copy an honest one, so that its data count many times over."""

import numpy as np
import torch
from torch import Tensor

from fedro import kernels
from fedro.attacks import moments
from fedro.attacks.table import forge
from fedro.attacks.view import View


@forge(knows="honest updates", least={"warmup": 1}, source="Karimireddy et al. 2022")
def mimic(view: View, *, warmup: int = 100) -> Tensor:
    """The update of the honest client that goes furthest in the direction where they differ most.

    For `warmup` rounds the direction is learned and the target chosen anew; then both stay. A
    target that was not sampled is replaced by the best one that was. Only rounds with a bad and
    an honest client count, since only there the attackers see something.
    """
    seen = int(view.memory.get("mimic.rounds", torch.tensor(0)))
    ids = view.ids[view.finite]
    if seen < warmup:
        learn(view, seen)
    if seen < warmup or int(view.memory["mimic.target"]) not in ids:
        direction = view.memory["mimic.direction"]
        scores = kernels.facts(view.updates, direction, rows=view.finite).dots
        view.memory["mimic.target"] = torch.tensor(int(ids[np.argmax(scores)]))
    view.memory["mimic.rounds"] = torch.tensor(seen + 1)
    target = np.flatnonzero(ids == int(view.memory["mimic.target"]))[0]
    return view.updates[int(view.finite[target])]


def learn(view: View, seen: int) -> None:
    """A step of the running mean, and a step of the direction to the main one around that mean."""
    share = 1 / (seen + 1)
    before = view.memory.get("mimic.mean", view.honest_mean).to(view.updates)
    mean = torch.lerp(before, view.honest_mean, share)
    old = view.memory["mimic.direction"].to(view.updates) if seen else normalized(view.noise())
    view.memory["mimic.mean"], view.memory["mimic.direction"] = mean, turn(view, mean, old, share)


def turn(view: View, mean: Tensor, z: Tensor, share: float) -> Tensor:
    """(1−share)·z + share·s/‖s‖, normalized, where s = Σ((g_i−μ)·z)(g_i−μ) over the honest g_i.

    If they do not differ, it is z itself.
    """
    dots = kernels.facts(view.updates, z, rows=view.finite).dots
    along = dots - moments.dot(mean, z)
    along /= max(float(np.abs(along).max()), np.finfo(float).tiny)  # only the direction counts
    total: Tensor = kernels.combine(view.updates, along, rows=view.finite).value
    step = normalized(total.sub_(mean, alpha=float(along.sum())), otherwise=z)
    return z if step is z else normalized(torch.lerp(z, step, share, out=step), otherwise=z)


def normalized(vector: Tensor, otherwise: Tensor | None = None) -> Tensor:
    """Scale the vector to length 1, in place; the other one if its length is out of range."""
    length = moments.length(vector)
    numbers = torch.finfo(vector.dtype)
    if numbers.tiny < length < numbers.max:
        return vector.div_(length)
    return vector if otherwise is None else otherwise
