"""Attacks: what bad clients train on (poison) and how (train), send (forge) or keep (silence).

    attack = parse_attack("sign_flip | takeover(at='reach')")   # or: sign_flip() | takeover(at=…)
    attack.forge(view).write(updates, view.byzantine)

A new attack is one function with `@poison(…)`, `@train(…)`, `@forge(…)` or `@silence(…)` above it:
the parser, the command line, the docs and the tests find it in the table.
"""

from collections.abc import Callable

from fedro.attacks import (
    control,
    fixed,
    mimicry,
    omniscient,
    poisoning,
    replacement,
    tailored,
    worst_of,
)
from fedro.attacks.defense import Defense
from fedro.attacks.pipeline import Attack, factory, parse_attack
from fedro.attacks.table import ATTACKS, Entry, forge, poison, silence, train
from fedro.attacks.view import Forged, HiddenError, View

__all__ = [
    "ATTACKS",
    "Attack",
    "Defense",
    "Entry",
    "Forged",
    "HiddenError",
    "View",
    "forge",
    "parse_attack",
    "poison",
    "silence",
    "train",
    *ATTACKS,
]

# Importing the modules fills the table.
_MODULES = (control, fixed, mimicry, omniscient, poisoning, replacement, tailored, worst_of)


def __getattr__(name: str) -> Callable[..., Attack]:
    """``fedro.attacks.foe(tau=3.0)`` makes an attack of one stage, for every name in the table."""
    if name in ATTACKS:
        return factory(ATTACKS[name])
    raise AttributeError(f"module 'fedro.attacks' has no attribute {name!r}")
