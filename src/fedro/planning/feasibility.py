"""Which pairs of sampled (n̂) and tolerated (b̂) clients keep a whole run safe, and which are good.

The search runs over b̂ and not over n̂, because safety is not monotone in n̂ (29 can work where 30
does not and 31 does). For one b̂, however, the sample sizes that work form an interval. It begins at
the least n̂ that outvotes b̂ (`smallest_sample`) and ends at the largest n̂ that has more than b̂
Byzantine clients rarely enough. Once some b̂ has such an interval, all larger b̂ have one too, apart
from the effects of rounding n̂ to whole clients.
"""

import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property

from fedro.common.checks import number
from fedro.planning import theory
from fedro.planning.planned_rule import ANY_RULE, PlannedRule, best_possible
from fedro.planning.tails import binomial_log_cdf, hypergeometric_log_cdf

BOUNDS = {
    "exact": "the exact hypergeometric tail",
    "shifted": "Chernoff's bound on P[more than b̂ Byzantine], which gives the paper's numbers",
    "literal": "Chernoff's bound on P[b̂ or more Byzantine], as eq. (6) of the paper is printed",
}


@dataclass(frozen=True)
class PlanningProblem:
    """The demands on a plan, before n̂ and b̂ are chosen."""

    population: int  # clients to draw from: all, or the fewest that are ever online
    byzantine: int
    draws: int  # rounds + retries
    retries: int
    dropout: float
    confidence: float
    bound: str
    rule: PlannedRule = field(default=ANY_RULE, repr=False, compare=False)

    def least_replies(self, tolerated: int) -> int:
        """The fewest replies with which a round is not void: 2b̂+1, or what the rule needs."""
        return self.rule.least_rows(tolerated, self.population)

    def largest_tolerated(self, sampled: int) -> int:
        """The largest b̂ that n̂ replies allow; −1 if there is none."""
        below_half = (sampled - 1) // 2
        if not self.rule.condition:
            return below_half
        tolerances = range(below_half + 1)
        return bisect_left(tolerances, True, key=lambda b: self.least_replies(b) > sampled) - 1

    @cached_property
    def log_confidence(self) -> float:
        """ln p, lowered by the rounding error of a bound that is met with equality."""
        return math.log(self.confidence) * (1 + 1e-11)

    def log_safe(self, sampled: int, tolerated: int) -> float:
        """ln of the proved probability that no draw has more than b̂ Byzantine clients."""
        if self.bound == "exact" or self.byzantine == 0:
            return self.log_safe_exact(sampled, tolerated)
        if self.bound == "shifted":
            if tolerated >= min(self.byzantine, sampled):
                return 0.0
            return self._log_chernoff(sampled, tolerated + 1)
        return self._log_chernoff(sampled, tolerated)

    def log_safe_exact(self, sampled: int, tolerated: int) -> float:
        """T·ln P[|B_t| ≤ b̂] with |B_t| hypergeometric: exact, whichever bound chose b̂."""
        one_draw = hypergeometric_log_cdf(tolerated, self.population, self.byzantine, sampled)
        return self.draws * one_draw

    def _log_chernoff(self, sampled: int, bad: int) -> float:
        """ln(1 − T·exp(−n̂·D(bad/n̂, β))), or −∞ where the union bound is void."""
        alpha, beta = Fraction(bad, sampled), Fraction(self.byzantine, self.population)
        if alpha <= beta:
            return -math.inf
        log_fail = math.log(self.draws) - sampled * theory.divergence(float(alpha), float(beta))
        return math.log1p(-math.exp(log_fail)) if log_fail < 0 else -math.inf

    def log_enough(self, sampled: int, tolerated: int) -> float:
        """ln P[at most `retries` draws are void], because too few reply."""
        missing_allowed = sampled - self.least_replies(tolerated)
        if self.dropout == 0.0 or missing_allowed < 0:
            return 0.0 if missing_allowed >= 0 else -math.inf
        valid = binomial_log_cdf(missing_allowed, sampled, self.dropout)
        return binomial_log_cdf(self.retries, self.draws, -math.expm1(valid))

    def achieved(self, sampled: int, tolerated: int) -> float:
        """The exact probability that the whole run is safe and has enough valid draws."""
        log_safe = self.log_safe_exact(sampled, tolerated)
        return math.exp(log_safe + self.log_enough(sampled, tolerated))

    @cached_property
    def reply_rate(self) -> Fraction:
        """1 − dropout, as the decimal that the user wrote."""
        return 1 - Fraction(str(self.dropout))

    def received(self, sampled: int) -> int:
        """The expected number of replies of n̂ invited clients, rounded down."""
        return sampled * self.reply_rate.numerator // self.reply_rate.denominator

    def holds(self, sampled: int, tolerated: int) -> bool:
        """Whether every draw is safe and enough are valid, with the wanted confidence."""
        enough = self.log_enough(sampled, tolerated)
        return enough + self.log_safe(sampled, tolerated) >= self.log_confidence

    @cached_property
    def max_tolerated(self) -> int:
        """The largest useful b̂: the one for sampling everyone, else the largest that is allowed."""
        everyone = tolerated_at(self, self.population)
        return max(0, self.largest_tolerated(self.population)) if everyone is None else everyone


def least(holds: Callable[[int], bool], low: int, high: int) -> int | None:
    """The least integer in [low, high] for which a monotone condition holds, or None."""
    if low > high or not holds(high):
        return None
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle + 1, high)
    return low


def tolerated_at(problem: PlanningProblem, sampled: int) -> int | None:
    """The smallest safe b̂ that n̂ replies allow, or None.

    A larger b̂ makes a draw safer, but void more easily. The loop starts without void draws and
    raises b̂ to what the remaining confidence demands until nothing changes, which gives the least
    solution.
    """
    most = problem.largest_tolerated(sampled)

    def demanded(by: int) -> int | None:
        need = problem.log_confidence - problem.log_enough(sampled, by)
        return least(lambda b: problem.log_safe(sampled, b) >= need, by, most)

    tolerated, larger = 0, demanded(0)
    while larger is not None and larger != tolerated:
        tolerated, larger = larger, demanded(larger)
    return larger


_MAX_GAP_DISTANCE = 8  # how far beyond the first b̂ without a gap rounding can open another gap
_STRIDE = 16  # how many b̂ are tried before checking again whether smaller ones can work


class SampleSearch:
    """Find the smallest n̂ that is safe with some b̂ for which `good(n̂, b̂)` holds.

    For each b̂, `good` must hold from the start or change from False to True once as n̂ grows in
    steps of two (κ can depend on the parity of n̂).
    """

    def __init__(self, problem: PlanningProblem, good: Callable[[int, int], bool]) -> None:
        self.problem = problem
        self.good = good

    def smallest_sample(self, tolerated: int) -> int | None:
        """The least n̂ that works with this b̂, or None. A fixed point, as in `tolerated_at`."""
        sampled = min(self._starts(tolerated), default=None)
        while sampled is not None:
            need = self.problem.log_confidence - self.problem.log_safe(sampled, tolerated)
            if need > 0 or self._hopeless(tolerated, sampled, need):
                return None
            larger = self._enough(tolerated, sampled, need)
            if larger == sampled:
                return sampled
            sampled = larger
        return None

    def first(self) -> int | None:
        """The least n̂ that works at all."""
        tolerated = self._first_tolerated()
        if tolerated is None:
            return None
        # The next b̂ can need fewer replies if this one has no confidence to spare.
        sizes = (self.smallest_sample(tolerated), self.smallest_sample(tolerated + 1))
        return min(n for n in sizes if n is not None)

    def first_without_gaps(self) -> int | None:
        """The least n̂ from which every n̂ up to the population is safe, whether good or not."""
        top = self.problem.max_tolerated
        start = least(lambda b: self._covers(b, top), 0, top)
        if start is None:
            return None
        # Rounding can open one more gap a little further on, but none beyond that.
        for tolerated in range(start, min(start + _MAX_GAP_DISTANCE, top) + 1):
            if not self._covers(tolerated, top):
                start = tolerated + 1
        return self.smallest_sample(start)

    def _first_tolerated(self) -> int | None:
        """Gallop to a b̂ that works, bisect, then try smaller ones as far as rounding can reach."""
        low, high, top = 0, 0, self.problem.max_tolerated
        # Beyond some b̂ no n̂ up to the population is good; the search must stop below it.
        top = bisect_left(range(top + 1), True, key=lambda b: not self._starts(b)) - 1
        while self.smallest_sample(high) is None:
            if high >= top:
                return None
            low, high = high + 1, min(high + 1 + high // 16, top)
        smallest = least(lambda b: self.smallest_sample(b) is not None, low, high) or 0
        below = smallest - 1
        while below >= 0 and self._works_without_rounding(below):
            for tolerated in range(below, max(-1, below - _STRIDE), -1):
                if self.smallest_sample(tolerated) is not None:
                    smallest = tolerated
            below -= _STRIDE
        return smallest

    def _works_without_rounding(self, tolerated: int) -> bool:
        """Whether this b̂ would work if n̂ were not rounded up to whole clients and replies."""
        starts = self._starts(tolerated)
        if not starts:
            return False
        sampled = self._enough(tolerated, min(starts), self.problem.log_confidence)
        if sampled is None:
            return False
        rounding = 1 if max(starts) - min(starts) <= 1 else 2
        if self.problem.dropout:  # this many more are invited to get one more reply
            rounding += math.ceil(1 / self.problem.reply_rate)
        log_safe = self.problem.log_safe(max(1, sampled - rounding), tolerated)
        return log_safe >= self.problem.log_confidence

    def _starts(self, tolerated: int) -> list[int]:
        """The least odd n̂ that outvotes b̂ and is good with it, and the least even one."""
        starts: list[int] = []
        fewest = self.problem.least_replies(tolerated)
        for first in (fewest, fewest + 1):
            sizes = range(first, self.problem.population + 1, 2)
            # The first size can be good although κ grows with n̂, as the median's does.
            if sizes and self.good(first, tolerated):
                starts.append(first)
                continue
            place = bisect_left(sizes, True, key=lambda n: self.good(n, tolerated))
            starts.extend(sizes[place : place + 1])
        return starts

    def _hopeless(self, tolerated: int, sampled: int, need: float) -> bool:
        """Whether more clients must reply than may be sampled: a quick test that saves a search.

        `likely` is the n̂ at which just enough replies are expected. If it is too small for enough
        replies and already too large to be safe, no n̂ is both.
        """
        likely = -(-self.problem.least_replies(tolerated) // self.problem.reply_rate)
        if not sampled < likely <= self.problem.population:
            return False
        few = self.problem.log_enough(likely, tolerated) < need
        return few and self.problem.log_safe(likely, tolerated) < self.problem.log_confidence

    def _enough(self, tolerated: int, low: int, need: float) -> int | None:
        """The least n̂ from `low` on that gets enough replies often enough."""
        enough = self.problem.log_enough
        return least(lambda n: enough(n, tolerated) >= need, low, self.problem.population)

    def _covers(self, tolerated: int, top: int) -> bool:
        """Whether this b̂'s sample sizes reach those of the next b̂, or the whole population."""
        smallest = self.smallest_sample(tolerated)
        next_smallest = (
            self.smallest_sample(tolerated + 1) if tolerated < top else self.problem.population + 1
        )
        if smallest is None or next_smallest is None:
            return False
        return self.problem.holds(max(smallest, next_smallest - 1), tolerated)


def expected_kappa(
    problem: PlanningProblem,
    rule: PlannedRule,
    sampled: int,
    tolerated: int,
    byzantine: int | None = None,
) -> float | None:
    """The rule's κ for the expected number of replies; None if nothing is proved.

    With dropouts the parity of that number is random, so the worse of two neighbors counts.
    """
    received = problem.received(sampled)
    replies = (received, received + 1) if problem.dropout else (received,)
    kappas = [rule.kappa(n, tolerated, byzantine) for n in replies]
    return None if None in kappas else max(kappas)  # type: ignore[type-var]


@dataclass(frozen=True)
class Goal:
    """The limit that a recommended pair (n̂, b̂) must meet: on κ, on b̂/n̂ or on r."""

    problem: PlanningProblem
    rule: PlannedRule
    max_kappa: float | None = None
    max_fraction: float | None = None
    max_best: float | None = None  # on r = b̂/(n̂−2b̂), the best possible κ

    def met(self, sampled: int, tolerated: int) -> bool:
        """Whether the expected replies are enough for the rule, and the limit is met."""
        received = self.problem.received(sampled)
        if received < self.problem.least_replies(tolerated):
            return False
        if self.max_fraction is not None:
            limit = self.fraction_limit
            return tolerated * limit.denominator <= limit.numerator * sampled
        if self.max_kappa is not None:
            kappa = expected_kappa(self.problem, self.rule, sampled, tolerated)
            return kappa is not None and kappa <= self.max_kappa * (1 + 1e-12)
        if self.max_best is not None:
            return best_possible(received, tolerated) <= self.max_best * (1 + 1e-12)
        return True

    @cached_property
    def fraction_limit(self) -> Fraction:
        """`max_fraction` as the decimal that the user wrote, so that 0.29·100 is 29."""
        return Fraction(str(self.max_fraction))

    def __str__(self) -> str:
        if self.max_fraction is not None:
            return f"tolerated/sampled ≤ {self.max_fraction:g}"
        if self.max_kappa is not None:
            return f"κ ≤ {self.max_kappa:.4g}"
        return f"r = b̂/(n̂−2b̂) ≤ {self.max_best:.4g}"


def make_goal(
    problem: PlanningProblem,
    rule: PlannedRule,
    max_kappa: float | None,
    max_fraction: float | None,
    recommend: bool,
) -> Goal:
    """Check the caller's limit; without one, use the default if n̂ is to be recommended.

    The default limits r and not the rule's own κ, so that all rules get the same n̂ and can be
    compared.
    """
    if max_kappa is not None and max_fraction is not None:
        raise ValueError(
            f"max_kappa={max_kappa} and max_fraction={max_fraction}: give one of the two"
        )
    if max_fraction is not None:
        wanted = "0 ≤ max_fraction < 0.5"
        limit = number("max_fraction", max_fraction, wanted, lambda x: 0 <= x < 0.5)
        return Goal(problem, rule, max_fraction=limit)
    if max_kappa is not None:
        if rule.formula is None:
            raise ValueError(
                f"max_kappa={max_kappa}: no κ is proved for {rule}, so there is nothing to limit; "
                "use max_fraction, or a rule with a proved κ (`fedro rules` lists them)"
            )
        limit = number("max_kappa", max_kappa, "0 ≤ max_kappa", lambda x: x >= 0)
        return Goal(problem, rule, max_kappa=limit)
    if recommend:
        everyone = best_possible(problem.population, problem.byzantine)
        return Goal(problem, rule, max_best=max(1.0, 2 * everyone))
    return Goal(problem, rule)
