"""Messages made for the rule: the strength is searched for, not chosen."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedro import kernels
from fedro.attacks import moments
from fedro.attacks.defense import Defense, Trial, trying
from fedro.attacks.dispersion import Crowd, gather
from fedro.attacks.response_curve import Honest, Landscape
from fedro.attacks.search import FINE, PEAKS, Look, climb, peaks
from fedro.attacks.table import forge
from fedro.attacks.view import View

Floats = NDArray[np.float64]
Direction = Literal["std", "sign", "unit"]
Best = tuple[Look, Tensor]  # a strength, and the direction it is in
NEAR = 1.25  # how far, at most, the best strength on all columns is thought to be from the sample's


@forge(knows="honest updates, rule", source="Allouah et al. 2023")
def optimal_alie(view: View) -> Tensor:
    """ALIE with the z, of either sign, that moves the rule's output furthest."""
    return strongest(view, view.crowd.std)


@forge(knows="honest updates, rule", source="Allouah et al. 2023")
def optimal_foe(view: View) -> Tensor:
    """Fall of empires with the tau, of either sign, that moves the rule's output furthest."""
    return strongest(view, view.crowd.mean)


@forge(
    knows="honest updates, rule",
    unless={"own": "own update, rule"},
    source="Shejwalkar and Houmansadr 2021",
)
def agr_tailored(
    view: View,
    *,
    direction: Literal["best", "std", "sign", "unit"] = "best",
    own: bool = False,
) -> Tensor:
    """The honest mean plus gamma times a direction, with the gamma that moves the rule furthest.

    Directions: minus the deviation (std), minus the signs of the mean (sign), minus the mean
    (unit), or the best of the three. With own=True it is made in a round that the bad clients
    imagine, where their own updates are the honest ones.
    """
    names: list[Direction] = ["std", "sign", "unit"] if direction == "best" else [direction]
    seen = imagined(view) if own else view
    mean, std = seen.crowd.mean, seen.crowd.std
    return strongest(seen, *(perturbation(name, mean, std) for name in names))


def imagined(view: View) -> View:
    """A smaller round with about the same shares, whose honest updates are the bad clients' own.

    Of these there are at least two, and no fewer than bad ones; all bad are tolerated if they are.
    """
    m, rule = len(view.byzantine), view.aggregate
    honest = max(m, 2)
    bad = min(max(round(m * m / max(view.sampled - m, 1)), 1), honest)
    n = honest + bad
    least = bad if m <= view.tolerated else 0
    tolerated = min(max(round(view.tolerated * n / view.sampled), least), (n - 1) // 2)
    return View(
        updates=view.own_updates[torch.arange(n) % m],
        honest=np.arange(honest),
        byzantine=np.arange(honest, n),
        ids=np.arange(n),
        model=view.model,
        server_lr=view.server_lr,
        tolerated=tolerated,
        round=view.round,
        rng=view.rng,
        aggregate=replace(rule, tolerated=tolerated) if isinstance(rule, Defense) else rule,
        trained=view.trained,
    )


@forge(knows="honest updates, rule")
def ambush(view: View) -> Tensor:
    """The planner's attacker: optimal ALIE while b̂ are not exceeded; then optimal FOE, unhindered.

    Nothing is proved of a rule once more bad clients than tolerated are sampled.
    """
    strikes = len(view.byzantine) > view.tolerated
    return strongest(view, view.crowd.mean if strikes else view.crowd.std)


def strongest(view: View, *directions: Tensor) -> Tensor:
    """ḡ + t·v with the v of these and the t that move the rule's output furthest."""
    search = _by_landscape if isinstance(view.aggregate, Defense) else _by_trial
    found, v = search(view, directions)
    return shifted(view.honest_mean, v, found.at if found.value > 0 else 0.0)


def shifted(mean: Tensor, direction: Tensor, t: float) -> Tensor:
    """ḡ + t·v, with a t that its type can hold."""
    most = torch.finfo(mean.dtype).max
    t = min(max(t, -most), most)
    return torch.add(mean, direction, alpha=t, out=kernels.empty_like(mean))


def _by_landscape(view: View, directions: Sequence[Tensor]) -> Best:
    """The best on sketches; where these are samples, the best on all columns of a few, and near."""
    rule = view.aggregate
    assert isinstance(rule, Defense)
    if "honest" not in view.kept:
        view.kept["honest"] = Honest(view, rule)
    found: list[Best] = []
    landscapes = [Landscape(view.kept["honest"], v, rule) for v in directions]
    for landscape, v in zip(landscapes, directions, strict=True):
        weighs = landscape.look(landscape.scale).share is not None
        looks = peaks(landscape.look, landscape.scale, steps=1 if weighs else FINE)
        found += [(look, v) for look in looks]
    found.sort(key=_value, reverse=True)
    if all(landscape.exact for landscape in landscapes):
        return found[0]
    with trying(view) as trial:
        mean = view.honest_mean
        best, v = max(
            ((_trial(trial, mean, v)(look.at), v) for look, v in found[:PEAKS]), key=_value
        )
        ends = (Look(0.0, best.at / NEAR), Look(0.0, best.at * NEAR))
        return climb(_trial(trial, mean, v), ends[0], best, ends[1], sections=3), v


def _by_trial(view: View, directions: Sequence[Tensor]) -> Best:
    """By calling a rule of which nothing is known."""
    spread, found = view.crowd.spread, []
    with trying(view) as trial:
        for v in directions:
            length = moments.length(v)
            scale = spread / length if spread > 0 and length > 0 else 1.0
            found += [(look, v) for look in peaks(_trial(trial, view.honest_mean, v), scale, FINE)]
    return max(found, key=_value)


def _value(best: Best) -> float:
    return best[0].value


def _trial(trial: Trial, mean: Tensor, direction: Tensor) -> Callable[[float], Look]:
    return lambda t: Look(trial(shifted(mean, direction, t)), t)


def perturbation(name: Direction, mean: Tensor, std: Tensor) -> Tensor:
    """A vector to take from the mean; its length does not matter."""
    if name == "sign":
        return mean.sign()
    return std if name == "std" else mean


@forge(
    knows="honest updates",
    unless={"own": "own update"},
    source="Shejwalkar and Houmansadr 2021",
)
def min_max(view: View, *, direction: Direction = "std", own: bool = False) -> Tensor:
    """The mean plus gamma times a direction, no further from anyone than two honest ones are.

    Of the gammas for which this holds, the largest. With own=True the bad clients' own updates
    stand for the honest ones, which they then need not see.
    """
    others = _crowd(view, own)
    v = perturbation(direction, others.mean, others.std)
    length = others.squared(v)
    if not length > 0:
        return others.mean
    along, room = others.along(v), others.sq.max() - others.gaps
    roots = (np.sqrt(along**2 + length * room) - along) / length
    return shifted(others.mean, v, -float(roots.min()))


@forge(
    knows="honest updates",
    unless={"own": "own update"},
    source="Shejwalkar and Houmansadr 2021",
)
def min_sum(
    view: View,
    *,
    direction: Direction = "std",
    bound: Literal["max", "min"] = "max",
    own: bool = False,
) -> Tensor:
    """The mean plus gamma times a direction, with a sum of squared distances as an honest one's.

    Of the gammas for which it is at most the largest such sum (the smallest with bound="min", as
    in the authors' code), the largest. With own=True, made of the bad clients' own updates.
    """
    others = _crowd(view, own)
    v = perturbation(direction, others.mean, others.std)
    length = others.squared(v)
    if not length > 0:
        return others.mean
    gaps = others.gaps
    room = gaps.max() if bound == "max" else gaps.min()  # Σ_i‖g_j − g_i‖² is Σ gaps + h·gap_j
    return shifted(others.mean, v, -float(np.sqrt(room / length)))


def _crowd(view: View, own: bool) -> Crowd:
    """The messages to hide among: the honest ones, or what the bad clients would have sent."""
    if own:
        return gather(view.own_updates, np.arange(len(view.byzantine)), view.trained)
    return view.crowd
