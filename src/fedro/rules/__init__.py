"""Robust rules: a matrix of updates (n, d) in, one update (d,) out.

    rule = parse_rule("nnm | trimmed_mean", b=11)      # or: nnm() | trimmed_mean(b=11)
    update = rule(updates)

A new rule is one function with `@register(…)`: the parser, the command line and the tests find it.
"""

from collections.abc import Callable

from fedro.rules import center, coordinate, mixers, selection, spectral
from fedro.rules.pipeline import Kappa, Rule, factory, parse_rule
from fedro.rules.table import RULES, Entry, register

__all__ = ["RULES", "Entry", "Kappa", "Rule", "parse_rule", "register", *RULES]

_MODULES = (center, coordinate, mixers, selection, spectral)  # importing them fills the table


def __getattr__(name: str) -> Callable[..., Rule]:
    """``fedro.rules.krum(b=2)`` makes a rule of one stage, for every name in the table."""
    if name in RULES:
        return factory(RULES[name])
    raise AttributeError(f"module 'fedro.rules' has no attribute {name!r}")
