"""Messages made of the honest ones of the same round, by attackers who read them all."""

from collections.abc import Iterator
from statistics import NormalDist
from typing import Literal

import torch
from torch import Tensor

from fedro.attacks.table import forge
from fedro.attacks.view import View


@forge(
    knows="honest updates",
    unless={"own": "own update"},
    source="Allen-Zhu et al. 2020",
)
def sign_flip(view: View, *, own: bool = False) -> Tensor | Iterator[Tensor]:
    """Minus the mean of the honest updates; with own=True, each minus its own update."""
    if own:
        return flipped(view)
    return -view.honest_mean


def flipped(view: View) -> Iterator[Tensor]:
    """Minus what each would have sent, one after the other in the same memory."""
    room = view.full(0.0)
    for number in range(len(view.byzantine)):
        yield torch.neg(view.own(number), out=room)


@forge(knows="honest updates", source="Xie et al. 2019")
def foe(view: View, *, tau: float = 2.0) -> Tensor:
    """Fall of empires: minus tau times the mean of the honest updates.

    −τ·ḡ as in ByzFL (2) and, called ε, in the paper; code that sends (1−τ')·ḡ has τ' = τ+1.
    A small one, such as 0.1, hides among the honest updates; 1 is `sign_flip`.
    """
    return view.honest_mean * -tau


@forge(knows="honest updates", source="Baruch et al. 2019")
def alie(view: View, *, z: float | None = None, sign: Literal[1, -1] = 1) -> Tensor:
    """A little is enough: mean of the honest updates plus z standard deviations (1/n) of them.

    Without z, the largest at which the message still hides among the honest ones (`hiding_z`).
    """
    z = hiding_z(view.sampled, len(view.byzantine)) if z is None else z
    mean, std = view.honest_moments
    return torch.add(mean, std, alpha=sign * z)


def hiding_z(sampled: int, byzantine: int) -> float:
    """Φ⁻¹((n−m−s)/(n−m)): beyond it lie s of the n−m honest ones, which with the m make a majority.

    s = ⌊n/2+1⌋−m, and 1 where the m are a majority by themselves. Slightly below 0 for m = 1 of an
    even n; 0 where one honest client is left, whose messages have no deviation.

    >>> round(hiding_z(25, 5), 4)
    0.2533
    """
    honest = sampled - byzantine
    supporters = max(sampled // 2 + 1 - byzantine, 1)
    inside = honest - supporters
    return NormalDist().inv_cdf(inside / honest) if inside > 0 else 0.0
