"""Attacks that choose their strength for the round: the largest damage, or the best disguise."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from fedro.attacks.attack import find_attack
from fedro.attacks.defense import Defense, Trial, trial_messages
from fedro.attacks.dispersion import Dispersion, length, measure_dispersion
from fedro.attacks.forged import Forged
from fedro.attacks.registration import forge
from fedro.attacks.response_curve import HonestRows, ResponseCurve
from fedro.attacks.search import (
    MAX_PEAKS,
    STEPS_PER_OCTAVE,
    Response,
    find_peaks,
    golden_section,
)
from fedro.attacks.view import View
from fedro.common.stages import Stage, parse_stage

Direction = Literal["std", "sign", "unit"]
Candidate = tuple[Response, Tensor]  # a response, and the direction that it is for
REFINED_RANGE = 1.25  # times the strength found on a sample: where all columns are tried


@forge(knows="honest updates, rule", source="Allouah et al. 2023")
def optimal_alie(view: View) -> Tensor:
    """ALIE with the strength z, of either sign, that moves the aggregate furthest.

    Example:
        >>> sorted(optimal_alie().knows)
        ['honest updates', 'rule']
    """
    return strongest(view, view.dispersion.std)


@forge(knows="honest updates, rule", source="Allouah et al. 2023")
def optimal_foe(view: View) -> Tensor:
    """Fall of empires with the strength τ, of either sign, that moves the aggregate furthest.

    Example:
        >>> sorted(optimal_foe().knows)
        ['honest updates', 'rule']
    """
    return strongest(view, view.dispersion.mean)


@forge(
    knows="honest updates, rule",
    knows_with={"own": "own update, rule"},
    source="Shejwalkar and Houmansadr 2021",
)
def agr_tailored(
    view: View,
    *,
    direction: Literal["best", "std", "sign", "unit"] = "best",
    own: bool = False,
) -> Tensor:
    """Send the honest mean plus γ times a direction, with the γ that moves the aggregate furthest.

    Args:
        direction: Minus the standard deviation ("std"), minus the signs of the mean ("sign"), minus
            the mean ("unit"), or whichever of the three moves the aggregate furthest ("best").
        own: Search in an imagined round in which the Byzantine clients' own updates are the honest
            ones, so that the attack needs no view of the honest updates.

    Example:
        >>> str(agr_tailored(direction="sign"))
        "agr_tailored(direction='sign')"
    """
    names: list[Direction] = ["std", "sign", "unit"] if direction == "best" else [direction]
    known = imagine_round(view) if own else view
    return strongest(known, *(_perturbation(name, known.dispersion) for name in names))


def imagine_round(view: View) -> View:
    """Return a smaller round in which the Byzantine clients' own updates are the honest ones.

    Its shares of Byzantine and tolerated clients are about those of the real round. It has at
    least two honest clients and no fewer honest than Byzantine ones, and it tolerates all its
    Byzantine clients if the real round does.
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
    """The attacker that the plan assumes: optimal ALIE, and optimal FOE in an overrun.

    Nothing is proved about a rule once more Byzantine clients than tolerated are sampled.

    Example:
        >>> sorted(ambush().knows)
        ['honest updates', 'rule']
    """
    overrun = len(view.byzantine) > view.tolerated
    return strongest(view, view.dispersion.mean if overrun else view.dispersion.std)


def strongest(view: View, *directions: Tensor) -> Tensor:
    """Return the ḡ + t·v that moves the aggregate furthest, over all t and the given v."""
    search = _search_curves if isinstance(view.aggregate, Defense) else _search_trials
    response, v = search(view, directions)
    return shifted(view.honest_mean, v, response.strength if response.distance > 0 else 0.0)


def shifted(mean: Tensor, direction: Tensor, strength: float) -> Tensor:
    """Return ḡ + t·v, with t limited to what the tensors' type can hold."""
    largest = torch.finfo(mean.dtype).max
    alpha = min(max(strength, -largest), largest)
    return torch.add(mean, direction, alpha=alpha)


def _search_curves(view: View, directions: Sequence[Tensor]) -> Candidate:
    """Search on response curves; where these are not exact, try the best few on all columns."""
    rule = view.aggregate
    assert isinstance(rule, Defense)
    if "honest rows" not in view.cache:
        view.cache["honest rows"] = HonestRows(view, rule)
    candidates: list[Candidate] = []
    curves = [ResponseCurve(view.cache["honest rows"], v, rule) for v in directions]
    for curve, v in zip(curves, directions, strict=True):
        share_known = curve(curve.scale).share is not None
        peaks = find_peaks(curve, curve.scale, steps=1 if share_known else STEPS_PER_OCTAVE)
        candidates += [(peak, v) for peak in peaks]
    candidates.sort(key=_distance, reverse=True)
    if all(curve.exact for curve in curves):
        return candidates[0]
    with trial_messages(view) as trial:
        mean = view.honest_mean
        tried = [
            (_trial_curve(trial, mean, v)(response.strength), v)
            for response, v in candidates[:MAX_PEAKS]
        ]
        best, v = max(tried, key=_distance)
        low, high = best.strength / REFINED_RANGE, best.strength * REFINED_RANGE
        ends = Response(0.0, low), Response(0.0, high)
        refined = golden_section(_trial_curve(trial, mean, v), ends[0], best, ends[1], sections=3)
        return refined, v


def _search_trials(view: View, directions: Sequence[Tensor]) -> Candidate:
    """Search by calling a rule about which nothing else is known."""
    spread, candidates = view.dispersion.spread, []
    with trial_messages(view) as trial:
        for v in directions:
            norm = length(v)
            scale = spread / norm if spread > 0 and norm > 0 else 1.0
            curve = _trial_curve(trial, view.honest_mean, v)
            candidates += [(peak, v) for peak in find_peaks(curve, scale, STEPS_PER_OCTAVE)]
    return max(candidates, key=_distance)


def _distance(candidate: Candidate) -> float:
    return candidate[0].distance


def _trial_curve(trial: Trial, mean: Tensor, direction: Tensor) -> Callable[[float], Response]:
    return lambda strength: Response(trial(shifted(mean, direction, strength)), strength)


def _perturbation(name: Direction, dispersion: Dispersion) -> Tensor:
    """Return the direction to subtract from the mean; its length does not matter."""
    if name == "sign":
        return dispersion.mean.sign()
    return dispersion.std if name == "std" else dispersion.mean


@forge(
    knows="honest updates",
    knows_with={"own": "own update"},
    source="Shejwalkar and Houmansadr 2021",
)
def min_max(view: View, *, direction: Direction = "std", own: bool = False) -> Tensor:
    """Send ḡ plus γ times a direction, no further from any other than honest updates can be.

    γ is the largest with max_i ‖message − g_i‖ ≤ max_{i,j} ‖g_i − g_j‖.

    Args:
        direction: Minus the standard deviation ("std"), minus the signs of the mean ("sign") or
            minus the mean ("unit").
        own: Use the Byzantine clients' own updates in place of the honest ones.

    Example:
        >>> str(min_max(direction="unit", own=True))
        "min_max(direction='unit', own=True)"
    """
    known = _dispersion(view, own)
    v = _perturbation(direction, known)
    squared = known.squared_length(v)
    if not squared > 0:
        return known.mean
    along, room = known.projections(v), known.squared_distances.max() - known.squared_deviations
    roots = (np.sqrt(along**2 + squared * room) - along) / squared
    return shifted(known.mean, v, -float(roots.min()))


@forge(
    knows="honest updates",
    knows_with={"own": "own update"},
    source="Shejwalkar and Houmansadr 2021",
)
def min_sum(
    view: View,
    *,
    direction: Direction = "std",
    bound: Literal["max", "min"] = "max",
    own: bool = False,
) -> Tensor:
    """Send ḡ plus γ times a direction, in sum no further from the others than an honest update.

    γ is the largest for which Σ_i ‖message − g_i‖² is at most the bound.

    Args:
        direction: Minus the standard deviation ("std"), minus the signs of the mean ("sign") or
            minus the mean ("unit").
        bound: The largest sum of an honest update ("max"), or the smallest ("min"), as in the
            authors' code.
        own: Use the Byzantine clients' own updates in place of the honest ones.

    Example:
        >>> str(min_sum(bound="min"))
        "min_sum(bound='min')"
    """
    known = _dispersion(view, own)
    v = _perturbation(direction, known)
    squared = known.squared_length(v)
    if not squared > 0:
        return known.mean
    deviations = known.squared_deviations  # Σ_i‖g_j − g_i‖² = Σ_i deviations_i + h·deviations_j
    room = deviations.max() if bound == "max" else deviations.min()
    return shifted(known.mean, v, -float(np.sqrt(room / squared)))


def _dispersion(view: View, own: bool) -> Dispersion:
    """The updates to hide among: the honest ones, or those that the Byzantine clients trained."""
    if own:
        return measure_dispersion(view.own_updates, np.arange(len(view.byzantine)), view.trained)
    return view.dispersion


USUAL_CANDIDATES = (
    "sign_flip; foe; alie; alie(sign=-1); mimic; min_max; min_sum; "
    "agr_tailored(direction='sign'); optimal_alie; optimal_foe"
)


def _candidates(text: str | None) -> list[Stage]:
    """Read a list like ``"foe; alie(z=1.5)"``; the usual candidates if there is none."""
    given = USUAL_CANDIDATES if text is None else text
    return [parse_stage("attack", part) for part in given.split(";")]


def _check_candidates(options: Mapping[str, Any]) -> None:
    """Raise unless all candidates are known and may be tried."""
    for stage in _candidates(options.get("among")):
        entry = find_attack(stage.name)
        entry.check_options(stage.options)
        same = entry.hook == "forge" and entry.replaces and not entry.distinct
        if stage.name == "worst" or not same or "own update" in entry.knowledge(stage.options):
            raise ValueError(
                f"worst(among=…): {stage} cannot be tried; candidates are attacks in which all "
                "Byzantine clients send the same message, made from the honest updates"
            )


@forge(knows="honest updates, rule", further=_check_candidates)
def worst(view: View, *, among: str | None = None) -> Forged:
    """Try several attacks in each round and send the update that moves the aggregate furthest.

    The run records which attack it was.

    Args:
        among: The candidates with their options, separated by semicolons:
            "foe(tau=3.0); alie". By default ten usual ones.

    Example:
        >>> str(worst(among="foe; alie"))
        "worst(among='foe; alie')"
    """
    best, name, message = -1.0, "", view.honest_mean
    with trial_messages(view) as trial:
        for stage in _candidates(among):
            sent = find_attack(stage.name).function(view, **stage.options)
            if not isinstance(sent, Tensor) or sent.ndim != 1:
                raise ValueError(f"worst(among=…): {stage} does not send one message for all")
            if (distance := trial(sent)) > best:
                best, name, message = distance, str(stage), sent.clone()
    return Forged(message, name=name)
