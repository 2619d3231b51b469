"""The rule that a plan is for, as far as the plan needs to know it."""

import math
from bisect import bisect_left
from dataclasses import dataclass
from functools import cached_property

from fedro.rules import ANY, MAJORITY, Rule, parse_rule
from fedro.rules.kappa import lower_bound
from fedro.rules.rule import KappaFormula, NoProofError


@dataclass(frozen=True)
class PlannedRule:
    """Where a rule may be used, and the κ that is proved for it.

    Attributes:
        rule: The rule, or None for a plan without one.
        formula: Its proved κ, or None if there is no proof.
    """

    rule: Rule | None
    formula: KappaFormula | None

    def __str__(self) -> str:
        return "no particular rule" if self.rule is None else str(self.rule)

    @cached_property
    def condition(self) -> str:
        """What the rule needs beyond a majority of honest rows, such as "n ≥ 4b+3"; or nothing."""
        entries = self.rule.entries if self.rule is not None else []
        special = [entry.valid for entry in entries if entry.valid not in (MAJORITY, ANY)]
        return ", ".join(map(str, special))

    def valid(self, n: int, b: int) -> bool:
        """Whether the rule may be used with n rows of which b are to be tolerated."""
        if 2 * b >= n:
            return False
        return self.rule is None or all(entry.allows(n, b) for entry in self.rule.entries)

    def least_rows(self, b: int, most: int) -> int:
        """The least number of rows with which the rule may tolerate b; most + 1 if none is."""
        majority = 2 * b + 1
        if not self.condition or majority > most:
            return majority
        sizes = range(majority, most + 1)
        return majority + bisect_left(sizes, True, key=lambda n: self.valid(n, b))

    def kappa(self, n: int, b: int, byzantine: int | None = None) -> float | None:
        """The proved κ; None without a proof, and where the rule may not be used."""
        value = math.inf if self.formula is None else self.formula(n, b, byzantine)
        return value if math.isfinite(value) else None


def planned_rule(rule: str | Rule | None) -> PlannedRule:
    """Check the rule of a plan.

    Raises:
        ValueError: The text is not a rule, the rule ends in a mixer, or it has a b of its own.
    """
    if rule is None:
        return ANY_RULE
    parsed = parse_rule(rule)
    if parsed.b is not None:
        raise ValueError(f"rule='{parsed}' names b: leave it out, the plan chooses it")
    try:
        return PlannedRule(parsed, parsed.kappa_formula())
    except NoProofError:
        return PlannedRule(parsed, None)


ANY_RULE = PlannedRule(None, None)


def best_possible(n: int, b: int) -> float:
    """r = b/(n−2b), the least κ that any rule can have; infinite if half or more are Byzantine."""
    return lower_bound(n, b) if 2 * b < n else math.inf
