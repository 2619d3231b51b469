"""Forged updates with a closed formula: constants, noise, and multiples of known updates."""

from collections.abc import Iterator
from statistics import NormalDist
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from fedro.attacks.dispersion import RowNumbers
from fedro.attacks.forged import Writer
from fedro.attacks.registration import forge
from fedro.attacks.view import View
from fedro.common.options import AT_LEAST_ZERO


@forge(replaces=False)
def none(view: View) -> None:
    """Do nothing: Byzantine clients behave like honest ones.

    Example:
        >>> none().trains
        True
    """


@forge()
def zero(view: View) -> Tensor:
    """Send zeros, which hold the model where it is.

    Example:
        >>> str(zero())
        'zero'
    """
    return view.full(0.0)


@forge()
def nan(view: View) -> Tensor:
    """Send NaN in every coordinate.

    Example:
        >>> str(nan())
        'nan'
    """
    return view.full(float("nan"))


@forge()
def inf(view: View) -> Tensor:
    """Send infinity in every coordinate.

    Example:
        >>> str(inf())
        'inf'
    """
    return view.full(float("inf"))


@forge()
def huge(view: View, *, value: float = 1e30) -> Tensor:
    """Send the same value in every coordinate, finite but far off.

    Args:
        value: The value.

    Example:
        >>> str(huge(value=-5.0))
        'huge(value=-5.0)'
    """
    return view.full(value)


@forge(ranges={"std": AT_LEAST_ZERO}, source="Blanchard et al. 2017", distinct=True)
def gauss(view: View, *, std: float, mean: float = 0.0) -> Writer:
    """Send independent normal noise N(mean, std²), different for every Byzantine client.

    Args:
        std: Standard deviation, at least 0.
        mean: Mean.

    Example:
        >>> str(gauss(std=2.0))
        'gauss(std=2.0)'
    """

    def write(updates: Tensor, rows: RowNumbers) -> None:
        for row in rows:  # one at a time: all of them would take as much memory as the updates
            noise = view.rng.standard_normal(updates.shape[1], dtype=np.float32)
            updates[int(row)] = torch.from_numpy(noise).mul_(std).add_(mean)

    return write


@forge(
    knows="honest updates",
    knows_with={"own": "own update"},
    source="Allen-Zhu et al. 2020",
)
def sign_flip(view: View, *, own: bool = False) -> Tensor | Iterator[Tensor]:
    """Send minus the mean of the honest updates; with own=True, each minus its own update.

    Args:
        own: Flip the update that each client trained, which needs no view of the honest updates.

    Example:
        >>> sign_flip(own=True).knows
        frozenset({'own update'})
    """
    if own:
        return _flipped_own(view)
    return -view.honest_mean


def _flipped_own(view: View) -> Iterator[Tensor]:
    """Minus what each trained, one after the other in the same memory."""
    message = view.full(0.0)
    for number in range(len(view.byzantine)):
        yield torch.neg(view.own(number), out=message)


@forge(knows="honest updates", source="Xie et al. 2019")
def foe(view: View, *, tau: float = 2.0) -> Tensor:
    """Fall of empires: send minus tau times the mean of the honest updates, −τ·ḡ.

    The strength τ is called ε in the paper; ByzFL uses the same sign and default. Code that sends
    (1−τ')·ḡ has τ' = τ+1. A small τ such as 0.1 hides among the honest updates; τ = 1 is
    `sign_flip`.

    Args:
        tau: The strength τ.

    Example:
        >>> str(foe(tau=0.1))
        'foe(tau=0.1)'
    """
    return view.honest_mean * -tau


@forge(knows="honest updates", source="Baruch et al. 2019")
def alie(view: View, *, z: float | None = None, sign: Literal[1, -1] = 1) -> Tensor:
    """A little is enough: send the honest mean plus z standard deviations, ḡ + z·σ.

    Args:
        z: The strength. By default the largest z with which the message still hides among the
            honest updates: Φ⁻¹((n−m−s)/(n−m)) for n sampled and m Byzantine clients, with
            s = ⌊n/2+1⌋−m.
        sign: 1 adds the deviations to the mean, -1 subtracts them.

    Example:
        >>> str(alie(z=1.5) | none())
        'alie(z=1.5) | none'
    """
    z = hiding_z(view.sampled, len(view.byzantine)) if z is None else z
    mean, std = view.honest_moments
    return torch.add(mean, std, alpha=sign * z)


def hiding_z(sampled: int, byzantine: int) -> float:
    """Return Φ⁻¹((n−m−s)/(n−m)), beyond which s of the n−m honest updates are expected.

    Together with the m Byzantine ones these s = ⌊n/2+1⌋−m make a majority; s is 1 where the m are
    a majority by themselves. The result is slightly below 0 for m = 1 of an even n, and 0 where
    one honest client is left, whose updates have no deviation.

    >>> round(hiding_z(25, 5), 4)
    0.2533
    """
    honest = sampled - byzantine
    supporters = max(sampled // 2 + 1 - byzantine, 1)
    inside = honest - supporters
    return NormalDist().inv_cdf(inside / honest) if inside > 0 else 0.0


@forge(knows="own update", source="Bagdasaryan et al. 2020")
def scaling(view: View, *, factor: float | None = None) -> Iterator[Tensor]:
    """Model replacement: each sends its own update times a factor, by default n̂/(γ_s·|B_t|).

    With the default, plain averaging moves the model to the mean of the Byzantine clients' models,
    plus the part of the step that is due to the honest clients. Usually it follows a poisoning
    stage: ``backdoor | scaling``.

    Args:
        factor: The factor. By default the number of sampled clients n̂, divided by the server
            learning rate γ_s and the number of Byzantine ones among them.

    Example:
        >>> str(scaling(factor=10.0))
        'scaling(factor=10.0)'
    """
    bad = len(view.byzantine)
    times = view.sampled / (view.server_lr * bad) if factor is None else factor
    message = view.full(times)
    if factor is None and view.trained is not None:
        message[view.trained :] = view.sampled / bad  # the server moves statistics with a step of 1
    factors = message.clone()
    for number in range(bad):
        yield torch.mul(view.own(number), factors, out=message)
