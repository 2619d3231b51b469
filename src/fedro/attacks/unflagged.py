"""Attacks on a server that keeps evidence about its clients: stay unflagged, or frame another."""

import math
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from fedro import kernels
from fedro.attacks.dispersion import Floats, RowNumbers
from fedro.attacks.forged import Forged
from fedro.attacks.registration import forge, wait
from fedro.attacks.view import View
from fedro.common.options import AT_LEAST_ZERO, PROPER_SHARE


@wait(ranges={"until": AT_LEAST_ZERO})
def patient(round: int, *, until: int = 100) -> bool:
    """Behave honestly until round `until`; from then on, do what the stages after it say.

    In front of another attack, as in ``patient(until=50) | label_flip``, it lets the Byzantine
    clients gather evidence that they are honest. They train on clean data while they wait.

    Args:
        until: Number of honest rounds, at least 0; rounds are counted from 0.

    Example:
        >>> from fedro.attacks import sign_flip
        >>> attack = patient(until=50) | sign_flip()
        >>> str(attack.at(49)), str(attack.at(50))
        ('none', 'sign_flip')
    """
    return round < until


@forge(knows="honest updates", replaces=False, distinct=True, ranges={"std": AT_LEAST_ZERO})
def noisy(view: View, *, std: float = 0.1) -> Forged:
    """Each adds noise of its own to its message: std times the honest standard deviation, std·σ.

    Behind another attack, as in ``sign_flip | noisy(std=0.1)``, it keeps the messages from being
    copies: two of them that were equal are about `std` times as far apart as two honest updates.
    Each coordinate has a σ of its own.

    Args:
        std: Standard deviation of the noise, as a multiple of σ, at least 0.

    Example:
        >>> from fedro.attacks import sign_flip
        >>> str(sign_flip() | noisy(std=0.5))
        'sign_flip | noisy(std=0.5)'
    """
    before, scale = view.forged, view.honest_std * std

    def write(updates: Tensor, rows: RowNumbers) -> None:
        before.write(updates, rows)
        for row in rows:
            updates[int(row)] += view.noise().mul_(scale)

    return before._replace(rows=write)


@forge(knows="honest updates", replaces=False, ranges={"victim": AT_LEAST_ZERO})
def framing(view: View, *, victim: int | None = None) -> Tensor | None:
    """Copy one honest client whenever it is sampled, so that it looks like one of the attackers.

    In all other rounds the stages before it decide what is sent; without any, the Byzantine
    clients behave honestly.

    Args:
        victim: The client to copy. By default one drawn from the honest clients that are in the
            first round with a Byzantine client.

    Example:
        >>> str(framing(victim=7))
        'framing(victim=7)'
    """
    if victim is None:
        victim = _drawn_victim(view)
    if victim in view.ids[view.byzantine]:
        raise ValueError(
            f"framing(victim={victim}): client {victim} is Byzantine itself; give an honest client,"
            " or none to have one drawn"
        )
    rows = np.flatnonzero(view.ids == victim)
    if not rows.size or not view.updates[int(rows[0])].isfinite().all():
        return None
    return view.updates[int(rows[0])]


def _drawn_victim(view: View) -> int:
    """The victim drawn in an earlier round, or else now; it stays the same for the whole run."""
    if "framing.victim" not in view.memory:
        drawn = view.rng.choice(view.ids[view.finite_honest])
        view.memory["framing.victim"] = torch.tensor(int(drawn))
    return int(view.memory["framing.victim"])


@forge(knows="honest updates, own update", ranges={"keep": PROPER_SHARE})
def below_the_line(view: View, *, keep: float = 0.5) -> Iterator[Tensor]:
    """Each subtracts as much of ḡ from its own update as leaves `keep` of the usual cosine with ḡ.

    The usual cosine is the median over the honest updates. Where honest clients differ, so low a
    cosine is not unusual, yet of all messages u − s·ḡ that reach it, this one is the most harmful.
    A client whose own cosine is lower already sends its update as it is.

    Args:
        keep: Share of the median cosine that is left, more than 0 and at most 1.

    Example:
        >>> str(below_the_line(keep=0.7))
        'below_the_line(keep=0.7)'
    """
    mean, strengths = view.honest_mean, _hostile_shares(view, keep)
    message = torch.empty_like(mean)
    for number, strength in enumerate(strengths.tolist()):
        yield torch.add(view.own(number), mean, alpha=-strength, out=message)


def _hostile_shares(view: View, keep: float) -> Floats:
    """The largest s ≥ 0 of each Byzantine client with cos(u − s·ḡ, ḡ) ≥ keep·median cosine.

    Let u have the part `along` in the direction of ḡ and `across` at right angles to it. Taking
    s·‖ḡ‖ from the former leaves u at the angle with cosine c once it is c/√(1−c²)·across. All
    of this follows from ‖x‖² and x·ḡ, one pass over the rows that the rule aggregates.
    """
    honest = view.finite_honest
    aggregated, mean = view.updates[:, : view.trained], view.honest_mean[: view.trained]
    rows = np.concatenate([honest, view.byzantine])
    facts = kernels.facts(aggregated, mean, rows=rows)
    norm = math.sqrt(max(facts.dots[: honest.size].mean(), 0.0))  # the mean of g_i·ḡ is ‖ḡ‖²
    if not 0 < norm < math.inf:
        return np.zeros(len(view.byzantine))
    along, squared = facts.dots / norm, facts.squared
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        cosines = np.nan_to_num(along[: honest.size] / np.sqrt(squared[: honest.size]))
        cosine = keep * min(float(np.median(cosines)), 1.0)
        across = np.sqrt(np.maximum(squared - along**2, 0.0))
        left = across * cosine / np.sqrt(1 - cosine**2)
        shares = (along - left)[honest.size :] / norm
    largest = float(torch.finfo(view.updates.dtype).max)
    return np.asarray(np.clip(np.nan_to_num(shares, nan=0.0), 0.0, largest))
