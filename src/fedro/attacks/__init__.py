"""Attacks: what Byzantine clients train on, send or withhold.

    attack = parse_attack("sign_flip | takeover(at='reach')")   # text, or
    attack = sign_flip() | takeover(at="reach")                 # objects
    attack.forge(view).write(updates, view.byzantine)

A new attack is one function with `@poison(…)`, `@train(…)`, `@forge(…)`, `@silence(…)` or
`@wait(…)` above it. The parser, the command line, the docs and the tests find it in the table
`ATTACKS`.
"""

from fedro.attacks.attack import Attack, parse_attack
from fedro.attacks.defense import Defense
from fedro.attacks.forged import Forged
from fedro.attacks.forging import alie, foe, gauss, huge, inf, nan, none, scaling, sign_flip, zero
from fedro.attacks.mimicry import mimic
from fedro.attacks.participation import silent, silent_when_weak, takeover
from fedro.attacks.poisoning import backdoor, constrain, label_flip
from fedro.attacks.registration import AttackFactory, forge, poison, silence, train, wait
from fedro.attacks.table import ATTACKS, AttackEntry
from fedro.attacks.tailored import (
    agr_tailored,
    ambush,
    min_max,
    min_sum,
    optimal_alie,
    optimal_foe,
    worst,
)
from fedro.attacks.unflagged import below_the_line, framing, noisy, patient
from fedro.attacks.view import HiddenError, View, visible
from fedro.common.options import (
    ABOVE_ZERO,
    AT_LEAST_ONE,
    AT_LEAST_ZERO,
    PROPER_SHARE,
    Range,
    at_least,
)

__all__ = [
    "ABOVE_ZERO",
    "ATTACKS",
    "AT_LEAST_ONE",
    "AT_LEAST_ZERO",
    "PROPER_SHARE",
    "Attack",
    "AttackEntry",
    "AttackFactory",
    "Defense",
    "Forged",
    "HiddenError",
    "Range",
    "View",
    "agr_tailored",
    "alie",
    "ambush",
    "at_least",
    "backdoor",
    "below_the_line",
    "constrain",
    "foe",
    "forge",
    "framing",
    "gauss",
    "huge",
    "inf",
    "label_flip",
    "mimic",
    "min_max",
    "min_sum",
    "nan",
    "noisy",
    "none",
    "optimal_alie",
    "optimal_foe",
    "parse_attack",
    "patient",
    "poison",
    "scaling",
    "sign_flip",
    "silence",
    "silent",
    "silent_when_weak",
    "takeover",
    "train",
    "visible",
    "wait",
    "worst",
    "zero",
]
