"""Attacks that decide by numbers: who answers, and when the server is lost."""

from typing import Literal

import torch

from fedro.attacks.table import forge, silence
from fedro.attacks.view import Forged, View


@forge(replaces=False)
def none(view: View) -> None:
    """What honest clients send: the bad ones do as they are told."""


@silence()
def silent(view: View) -> bool:
    """Nothing: no bad client answers."""
    return True


@silence(replaces=False, least={"least": 1})
def silent_when_weak(view: View, *, least: int | None = None) -> bool:
    """Nothing, unless enough of them were sampled: at least `least`, else more than tolerated.

    The server counts draws, and a void round is one: who waits for a better draw gains nothing.
    """
    return len(view.byzantine) < (view.tolerated + 1 if least is None else least)


@forge(replaces=False, source="Allouah et al. 2024")
def takeover(view: View, *, at: Literal["more", "reach"] = "more") -> Forged | None:
    """The server's model becomes zero if more bad clients than tolerated were sampled.

    With at="reach" as many as tolerated are enough. Otherwise the stages before decide.
    """
    bad = len(view.byzantine)
    seized = bad > view.tolerated if at == "more" else bad >= view.tolerated
    return Forged(model=torch.zeros_like(view.model)) if seized else None
