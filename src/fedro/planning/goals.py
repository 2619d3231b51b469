"""How good a pair (n̂, b̂) must be to be recommended, and what to say when none is."""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from fedro.common.checks import number
from fedro.planning.feasibility import Setting

Kappa = Callable[[int, int], float]


def expected_kappa(setting: Setting, kappa_of: Kappa, sampled: int, tolerated: int) -> float | None:
    """κ with the answers to be expected, None if these are too few for a valid round.

    With dropouts their parity is a matter of chance, so the worse of two neighbors counts.
    """
    received = setting.received(sampled)
    if received <= 2 * tolerated:
        return None
    kappa = kappa_of(received, tolerated)
    return max(kappa, kappa_of(received + 1, tolerated)) if setting.dropout else kappa


@dataclass(frozen=True)
class Goal:
    """How good a pair (n̂, b̂) must be to be recommended."""

    setting: Setting
    kappa_of: Kappa
    max_kappa: float | None
    max_fraction: float | None

    def met(self, sampled: int, tolerated: int) -> bool:
        """Is b̂/n̂, or else κ with the answers to be expected, within its limit?"""
        if self.max_fraction is not None:
            limit = self.fraction_limit
            small = tolerated * limit.denominator <= limit.numerator * sampled
            return small and self.setting.received(sampled) > 2 * tolerated
        kappa = expected_kappa(self.setting, self.kappa_of, sampled, tolerated)
        if kappa is None or self.max_kappa is None:
            return kappa is not None
        return kappa <= self.max_kappa * (1 + 1e-12)

    @cached_property
    def fraction_limit(self) -> Fraction:
        """`max_fraction` as the decimal it was written as: 0.29·100 is 29."""
        return Fraction(str(self.max_fraction))

    def __str__(self) -> str:
        if self.max_fraction is not None:
            return f"tolerated/sampled ≤ {self.max_fraction:g}"
        return f"κ ≤ {self.max_kappa:.4g}"


def make_goal(
    setting: Setting,
    kappa_of: Kappa,
    everyone: float,
    max_kappa: float | None,
    max_fraction: float | None,
    recommend: bool,
) -> Goal:
    """The caller's limit, or the default one if n̂ is to be recommended; checked."""
    if max_kappa is not None and max_fraction is not None:
        raise ValueError(
            f"max_kappa={max_kappa} and max_fraction={max_fraction}: give one of the two"
        )
    if max_fraction is not None:
        wanted = "0 ≤ max_fraction < 0.5"
        max_fraction = number("max_fraction", max_fraction, wanted, lambda x: 0 <= x < 0.5)
    elif max_kappa is not None:
        max_kappa = number("max_kappa", max_kappa, "0 ≤ max_kappa", lambda x: x >= 0)
    elif recommend:
        max_kappa = max(1.0, 2 * everyone)
    return Goal(setting, kappa_of, max_kappa, max_fraction)


def nothing_works(setting: Setting) -> str:
    """Why no n̂ is safe, and what would make one so."""
    advice = "allow retries, or expect fewer dropouts" if setting.dropout else ""
    if setting.bound != "exact":
        advice = "use bound='exact'" + (f", {advice}" if advice else "")
    return (
        f"no sample size of up to {setting.population} clients is safe with confidence "
        f"{setting.confidence:g} by the {setting.bound} bound"
        f"{' at dropout ' + format(setting.dropout, 'g') if setting.dropout else ''}: {advice}"
    )


def unsafe(
    setting: Setting, sampled: int, tolerated: int | None, goal: Goal, n_min: int, n_all: int | None
) -> str:
    """Why this n̂ will not do, and which would."""
    kappa = None
    if tolerated is not None:
        kappa = expected_kappa(setting, goal.kappa_of, sampled, tolerated)
        if kappa is None:
            return (
                f"sampled={sampled} has to tolerate {tolerated}, but only about "
                f"{setting.received(sampled)} would answer: most rounds would be void; sample more"
            )
    if kappa is not None:
        return (
            f"sampled={sampled} has to tolerate {tolerated} (κ = {kappa:.4g}), which misses "
            f"{goal}: sample more, or allow more"
        )
    larger = f"; every size from {n_all} on works" if n_all else ""
    return (
        f"sampled={sampled}: no tolerated < sampled/2 is safe with confidence "
        f"{setting.confidence:g} by the {setting.bound} bound. "
        f"The least that works is {n_min}{larger}"
    )
