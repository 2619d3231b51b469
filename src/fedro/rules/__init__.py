"""Robust rules: they map a matrix of updates (n, d) to one update (d,).

    rule = parse_rule("nnm | trimmed_mean", b=11)      # or: nnm() | trimmed_mean(b=11)
    update = rule(updates)

A new rule is one function with `@register(…)` above it. The parser, the command line, the
documentation and the tests of all rules find it in the table `RULES`.
"""

from fedro.common.options import (
    ABOVE_ZERO,
    AT_LEAST_ONE,
    AT_LEAST_ZERO,
    PROPER_SHARE,
    Range,
    at_least,
)
from fedro.rules.center import centered_clipping, fltrust, geometric_median
from fedro.rules.coordinate import meamed, mean, median, norm_clip, trimmed_mean
from fedro.rules.mixers import arc, bucketing, clip, clip_step, nnm
from fedro.rules.registration import RuleFactory, register
from fedro.rules.rows import NoAggregateError, Rows
from fedro.rules.rule import DEFAULT_RULE, Kappa, Rule, parse_rule
from fedro.rules.selection import bulyan, krum, mda, monna, multi_krum, mva, smea
from fedro.rules.spectral import caf, dnc
from fedro.rules.table import ANY, BULYAN_SIZE, MAJORITY, RULES, RuleEntry, Validity

__all__ = [
    "ABOVE_ZERO",
    "ANY",
    "AT_LEAST_ONE",
    "AT_LEAST_ZERO",
    "BULYAN_SIZE",
    "DEFAULT_RULE",
    "MAJORITY",
    "PROPER_SHARE",
    "RULES",
    "Kappa",
    "NoAggregateError",
    "Range",
    "Rows",
    "Rule",
    "RuleEntry",
    "RuleFactory",
    "Validity",
    "arc",
    "at_least",
    "bucketing",
    "bulyan",
    "caf",
    "centered_clipping",
    "clip",
    "clip_step",
    "dnc",
    "fltrust",
    "geometric_median",
    "krum",
    "mda",
    "meamed",
    "mean",
    "median",
    "monna",
    "multi_krum",
    "mva",
    "nnm",
    "norm_clip",
    "parse_rule",
    "register",
    "smea",
    "trimmed_mean",
]
