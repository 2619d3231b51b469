"""The worst of several attacks, chosen anew in each round."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from fedro.attacks.defense import trying
from fedro.attacks.pipeline import find
from fedro.attacks.table import forge
from fedro.attacks.view import Forged, View
from fedro.common.registry import Stage, parse_stage

USUAL = (
    "sign_flip; foe; alie; alie(sign=-1); mimic; min_max; min_sum; "
    "agr_tailored(direction='sign'); optimal_alie; optimal_foe"
)


def candidates(text: str | None) -> list[Stage]:
    """The attacks of a list like ``"foe; alie(z=1.5)"``; the usual ones if there is none."""
    return [parse_stage("attack", part) for part in (USUAL if text is None else text).split(";")]


def check(options: Mapping[str, Any]) -> None:
    """Raise unless all candidates are known and may be tried."""
    for stage in candidates(options.get("among")):
        entry = find(stage.name)
        entry.check_options(stage.options)
        same = entry.hook == "forge" and entry.replaces and not entry.each
        if stage.name == "worst" or not same or "own update" in entry.knowledge(stage.options):
            raise ValueError(
                f"worst(among=…): {stage} cannot be tried; candidates are attacks in which all bad "
                "clients send the same, made of what they see of the honest ones"
            )


@forge(knows="honest updates, rule", check=check)
def worst(view: View, *, among: str | None = None) -> Forged:
    """Of several messages the one that moves the rule's output furthest from the honest mean.

    The candidates are attacks with their options, separated by semicolons: the usual ones, unless
    others are named. Which of them it was is recorded.
    """
    best, name, message = -1.0, "", view.honest_mean
    with trying(view) as trial:
        for stage in candidates(among):
            sent = find(stage.name).function(view, **stage.options)
            if not isinstance(sent, Tensor) or sent.ndim != 1:
                raise ValueError(f"worst(among=…): {stage} does not send one message for all")
            if (value := trial(sent)) > best:
                best, name, message = value, str(stage), sent.clone()
    return Forged(message, name=name)
