"""Which pairs of sampled (n̂) and tolerated (b̂) keep a whole run safe, and where they begin.

The search runs over b̂, not n̂. Along n̂ safety flickers (29 works, 30 does not, 31 does). But for
one b̂ the sample sizes that work form an interval, from the least n̂ that outvotes b̂ (its `entry`)
to the largest that holds more than b̂ bad clients rarely enough; and once some b̂ has such an
interval, all larger ones do, up to the rounding of n̂ to whole clients.
"""

import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from fedro.planning import theory
from fedro.planning.tails import binomial_log_cdf, hypergeometric_log_cdf

BOUNDS = {
    "exact": "the hypergeometric tail itself",
    "shifted": "Chernoff's bound on P[more than b̂ bad], from which the paper's own numbers follow",
    "literal": "Chernoff's bound on P[b̂ bad or more], as eq. (6) of the paper is printed",
}


@dataclass(frozen=True)
class Setting:
    """One planning problem: what is asked of every draw, whatever n̂ and b̂ turn out to be."""

    population: int  # clients that can be drawn: all, or the fewest that are online
    byzantine: int
    draws: int  # rounds + retries
    retries: int
    dropout: float
    confidence: float
    bound: str

    @cached_property
    def log_confidence(self) -> float:
        """ln p, less what rounding can take from a bound that is met with equality."""
        return math.log(self.confidence) * (1 + 1e-11)

    def log_safe(self, sampled: int, tolerated: int) -> float:
        """ln of the proved probability that no draw holds more than b̂ bad clients."""
        if self.bound == "exact" or self.byzantine == 0:
            return self.log_safe_exact(sampled, tolerated)
        if self.bound == "shifted":
            if tolerated >= min(self.byzantine, sampled):
                return 0.0
            return self._log_chernoff(sampled, tolerated + 1)
        return self._log_chernoff(sampled, tolerated)

    def log_safe_exact(self, sampled: int, tolerated: int) -> float:
        """T·ln P[|B_t| ≤ b̂] with |B_t| hypergeometric: the truth, whichever bound chose b̂."""
        one = hypergeometric_log_cdf(tolerated, self.population, self.byzantine, sampled)
        return self.draws * one

    def _log_chernoff(self, sampled: int, bad: int) -> float:
        """ln(1 − T·exp(−n̂·D(bad/n̂, β))); −∞ where the union bound says nothing."""
        alpha, beta = Fraction(bad, sampled), Fraction(self.byzantine, self.population)
        if alpha <= beta:
            return -math.inf
        log_fail = math.log(self.draws) - sampled * theory.divergence(float(alpha), float(beta))
        return math.log1p(-math.exp(log_fail)) if log_fail < 0 else -math.inf

    def log_enough(self, sampled: int, tolerated: int) -> float:
        """ln P[at most `retries` draws are void], a draw being void with 2b̂ answers or fewer."""
        missing_allowed = sampled - 2 * tolerated - 1
        if self.dropout == 0.0 or missing_allowed < 0:
            return 0.0 if missing_allowed >= 0 else -math.inf
        valid = binomial_log_cdf(missing_allowed, sampled, self.dropout)
        return binomial_log_cdf(self.retries, self.draws, -math.expm1(valid))

    def achieved(self, sampled: int, tolerated: int) -> float:
        """The true probability that the whole run is good, whichever bound chose b̂."""
        log_safe = self.log_safe_exact(sampled, tolerated)
        return math.exp(log_safe + self.log_enough(sampled, tolerated))

    @cached_property
    def answering(self) -> Fraction:
        """1 − dropout, as the decimal it was written as."""
        return 1 - Fraction(str(self.dropout))

    def received(self, sampled: int) -> int:
        """The answers to expect of n̂ invited clients, rounded down."""
        return sampled * self.answering.numerator // self.answering.denominator

    def holds(self, sampled: int, tolerated: int) -> bool:
        """Is the run good with the wanted confidence: every draw safe, enough of them valid?"""
        enough = self.log_enough(sampled, tolerated)
        return enough + self.log_safe(sampled, tolerated) >= self.log_confidence

    @cached_property
    def most_tolerated(self) -> int:
        """The largest b̂ that can be of use: that of sampling everyone, or else any below half."""
        everyone = tolerated_at(self, self.population)
        return (self.population - 1) // 2 if everyone is None else everyone


def least(wanted: Callable[[int], bool], low: int, high: int) -> int | None:
    """The least integer in [low, high] that is wanted, if all larger ones are too; else None."""
    if low > high or not wanted(high):
        return None
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if wanted(middle) else (middle + 1, high)
    return low


def tolerated_at(setting: Setting, sampled: int) -> int | None:
    """The smallest safe b̂ < n̂/2 for this n̂, or None.

    More tolerance makes a draw safer but void more easily. Starting from no void draws, b̂ is
    raised to what the remaining confidence demands until it demands no more: the least solution.
    """
    most = (sampled - 1) // 2

    def demanded(by: int) -> int | None:
        need = setting.log_confidence - setting.log_enough(sampled, by)
        return least(lambda b: setting.log_safe(sampled, b) >= need, by, most)

    tolerated, larger = 0, demanded(0)
    while larger is not None and larger != tolerated:
        tolerated, larger = larger, demanded(larger)
    return larger


_ROUNDING = 8  # how far beyond a first gapless b̂ a gap can still open
_STRIDE = 16  # how many b̂ are tried between two looks at whether still smaller ones can work


class Search:
    """Where, along n̂, a setting can be met with pairs of n̂ and b̂ that are `good` enough.

    `good(n̂, b̂)` must hold at once or turn from no to yes once as n̂ grows by twos (κ can depend on
    its parity).
    """

    def __init__(self, setting: Setting, good: Callable[[int, int], bool]) -> None:
        self.setting = setting
        self.good = good

    def entry(self, tolerated: int) -> int | None:
        """The least n̂ that works with this b̂, or None: the fixed point of `tolerated_at`, in n̂."""
        sampled = min(self._starts(tolerated), default=None)
        while sampled is not None:
            need = self.setting.log_confidence - self.setting.log_safe(sampled, tolerated)
            if need > 0 or self._hopeless(tolerated, sampled, need):
                return None
            found = self._enough(tolerated, sampled, need)
            if found == sampled:
                return sampled
            sampled = found
        return None

    def first(self) -> int | None:
        """The least n̂ that works at all."""
        tolerated = self._first_tolerated()
        if tolerated is None:
            return None
        # One more of tolerance can need fewer answers, where the first has no confidence to spare.
        entries = (self.entry(tolerated), self.entry(tolerated + 1))
        return min(n for n in entries if n is not None)

    def from_where_all(self) -> int | None:
        """The least n̂ from which on every n̂ up to the population is safe (good or not)."""
        top = self.setting.most_tolerated
        start = least(lambda b: self._covers(b, top), 0, top)
        if start is None:
            return None
        # Rounding can open a last gap a little further on; it closes for good soon after.
        for tolerated in range(start, min(start + _ROUNDING, top) + 1):
            if not self._covers(tolerated, top):
                start = tolerated + 1
        return self.entry(start)

    def _first_tolerated(self) -> int | None:
        """Gallop to some b̂ that works, bisect, then look below it as far as rounding can reach."""
        low, high, top = 0, 0, self.setting.most_tolerated
        # Beyond some b̂ no n̂ up to the population is good, so none works; it must not count as one.
        top = bisect_left(range(top + 1), True, key=lambda b: not self._starts(b)) - 1
        while self.entry(high) is None:
            if high >= top:
                return None
            low, high = high + 1, min(high + 1 + high // 16, top)
        found = least(lambda b: self.entry(b) is not None, low, high) or 0
        below = found - 1
        while below >= 0 and self._nearly(below):
            for tolerated in range(below, max(-1, below - _STRIDE), -1):
                found = tolerated if self.entry(tolerated) is not None else found
            below -= _STRIDE
        return found

    def _nearly(self, tolerated: int) -> bool:
        """Would this b̂ work, if n̂ need not be rounded up to whole clients, answers or even ones?"""
        starts = self._starts(tolerated)
        if not starts:
            return False
        sampled = self._enough(tolerated, min(starts), self.setting.log_confidence)
        if sampled is None:
            return False
        rounding = 1 if max(starts) - min(starts) <= 1 else 2
        if self.setting.dropout:  # one answer more takes as many more invited
            rounding += math.ceil(1 / self.setting.answering)
        log_safe = self.setting.log_safe(max(1, sampled - rounding), tolerated)
        return log_safe >= self.setting.log_confidence

    def _starts(self, tolerated: int) -> list[int]:
        """The least odd n̂ that outvotes b̂ and is good with it, and the least even one."""
        starts: list[int] = []
        for first in (2 * tolerated + 1, 2 * tolerated + 2):
            sizes = range(first, self.setting.population + 1, 2)
            if sizes and self.good(first, tolerated):  # also where κ grows with n̂, as the median's
                starts.append(first)
                continue
            found = bisect_left(sizes, True, key=lambda n: self.good(n, tolerated))
            starts.extend(sizes[found : found + 1])
        return starts

    def _hopeless(self, tolerated: int, sampled: int, need: float) -> bool:
        """Do more clients have to answer than may be sampled? One look that spares a search.

        `likely` is the n̂ at which 2b̂+1 answers are to be expected. If it is too small for enough
        answers and already too large to be safe, no n̂ is both.
        """
        likely = -(-(2 * tolerated + 1) // self.setting.answering)
        if not sampled < likely <= self.setting.population:
            return False
        few = self.setting.log_enough(likely, tolerated) < need
        return few and self.setting.log_safe(likely, tolerated) < self.setting.log_confidence

    def _enough(self, tolerated: int, low: int, need: float) -> int | None:
        """The least n̂ from `low` on that answers often enough."""
        enough = self.setting.log_enough
        return least(lambda n: enough(n, tolerated) >= need, low, self.setting.population)

    def _covers(self, tolerated: int, top: int) -> bool:
        """Do this b̂'s sample sizes reach to those of the next one, or to the whole population?"""
        entry = self.entry(tolerated)
        following = self.entry(tolerated + 1) if tolerated < top else self.setting.population + 1
        if entry is None or following is None:
            return False
        return self.setting.holds(max(entry, following - 1), tolerated)
