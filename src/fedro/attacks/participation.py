"""Attacks that depend on who was sampled: staying silent, waiting, and taking over the server."""

from typing import Literal

import torch

from fedro.attacks.forged import Forged
from fedro.attacks.registration import forge, silence
from fedro.attacks.view import View
from fedro.common.options import AT_LEAST_ONE


@silence()
def silent(view: View) -> bool:
    """Never reply.

    Example:
        >>> silent().trains
        False
    """
    return True


@silence(replaces=False, ranges={"least": AT_LEAST_ONE})
def silent_when_weak(view: View, *, least: int | None = None) -> bool:
    """Reply only if at least `least` Byzantine clients were sampled (by default b̂ + 1).

    The plan counts draws, and a void round is a draw, so attackers who wait for a better draw gain
    nothing.

    Args:
        least: The number of sampled Byzantine clients from which on they reply, at least 1. By
            default one more than tolerated.

    Example:
        >>> str(silent_when_weak(least=3))
        'silent_when_weak(least=3)'
    """
    return len(view.byzantine) < (view.tolerated + 1 if least is None else least)


@forge(replaces=False, source="Allouah et al. 2024")
def takeover(view: View, *, at: Literal["more", "reach"] = "more") -> Forged | None:
    """Set the server's model to zero if the sampled Byzantine clients outnumber b̂.

    In all other rounds the stages before it decide what is sent.

    Args:
        at: "more" needs more Byzantine clients than tolerated, an overrun; "reach" needs as many
            as tolerated.

    Example:
        >>> str(takeover(at="reach"))
        "takeover(at='reach')"
    """
    bad = len(view.byzantine)
    seized = bad > view.tolerated if at == "more" else bad >= view.tolerated
    return Forged(model=torch.zeros_like(view.model)) if seized else None
