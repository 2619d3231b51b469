"""Who is suspect: a decision from the evidence, with a stated rate of false discoveries.

**The question.** Is the slope of a client (`fedro.server.evidence`) an outlier among the slopes of
the others? Honest clients differ, so there is no fixed null distribution. It is estimated from the
clients themselves: fewer than half are Byzantine, so the median and the shortest interval that
holds half of the slopes are close to those of the honest ones.

**The test.** z = (slope − median) / √(scale² + extra noise). The scale is at least a fifth of the
median, so that small differences never count, however certain they are. The extra noise is that of
a client with fewer draws or less agreement than the median client. The p-values of a normal
distribution, both tails, go through the procedure of Benjamini and Hochberg. What it flags is left
out when the median and the scale are estimated again, until nothing changes.

**Repeated looks.** Decisions are made after 10, 15, 22, 33, 50 and 75 rounds, and then every 32
rounds. The j-th look spends 6/(π²j²) of the rate, so all looks together spend it once. Half of it
goes to all rounds, half to the last two intervals between looks, in which a client that was honest
for long and then turned shows earlier.

**Copies.** Clients that often send the same update as two or more others are suspects as well. Of
clients that are all copies of each other at most one is honest: the one that was copied. It is
usually a copy less often than those that copy it, and is then not flagged.

docs/explanation/suspects.md says what is assumed, what is proved and what is only measured.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from fedro.server.evidence import SUMS, Evidence, Floats
from fedro.server.scores import Ids

Bools = NDArray[np.bool_]
DEFAULT_FDR = 0.05
MIN_DRAWS = 3  # before a client is judged
MIN_CLIENTS = 8  # that can be judged, or there is no null distribution
MATERIAL = 0.2  # of the median: the smallest scale of slopes
MAX_NOISE_TOTAL, MAX_NOISE_RECENT = 0.25, 0.1  # of the median slope, at a typical client
HALF_WIDTH = 0.6744897501960817  # of the central half of a normal distribution
MIN_COPY_SHARE, RELATIVE_COPY_SHARE = 0.25, 0.75  # of a client's rounds; of its neighbors' share
MAX_PASSES = 20


class Slopes(NamedTuple):
    """The slopes of all clients against the null distribution.

    Attributes:
        slope: The slope of each client; NaN if it was not drawn.
        z: Its distance from the median in units of its scale; 0 if it cannot be judged.
        p: The two-sided p-value; 1 if it cannot be judged.
        median: The median slope of the clients that are not flagged.
        scale: The scale of the slopes of honest clients.
    """

    slope: Floats
    z: Floats
    p: Floats
    median: float
    scale: float


class Verdict(NamedTuple):
    """Who is suspect, and why.

    Attributes:
        total: The slopes over all rounds.
        recent: The slopes over the last intervals.
        by_direction: The clients that are flagged for their slope.
        by_copies: The clients that are flagged because they sent copies.
        at_least: How many clients are Byzantine, with a confidence of 95%.
    """

    total: Slopes
    recent: Slopes
    by_direction: Bools
    by_copies: Bools
    at_least: int

    @property
    def flagged(self) -> Bools:
        """All suspects."""
        return self.by_direction | self.by_copies


def judge(evidence: Evidence, fdr: float = DEFAULT_FDR, look: int | None = None) -> Verdict:
    """Decide who is suspect.

    Args:
        evidence: The sums over the rounds.
        fdr: The rate of false discoveries for all looks together.
        look: Which look this is, counted from 1; by default the next one of the evidence.
    """
    number = evidence.looks + 1 if look is None else look
    level = fdr * 6 / (math.pi * number) ** 2 / 2
    before = evidence.flagged >= 0
    total = by_direction(evidence.total, level, before, MAX_NOISE_TOTAL)
    recent = by_direction(evidence.recent, level, before, MAX_NOISE_RECENT)
    strict = by_direction(evidence.total, 0.05 / 2, before, MAX_NOISE_TOTAL, bonferroni=True)
    copies = by_copies(evidence)
    certain = certainly_byzantine(evidence.pairs, strict.flagged)
    flagged = total.flagged | recent.flagged
    return Verdict(total.slopes, recent.slopes, flagged, copies, certain)


class Outliers(NamedTuple):
    """The slopes, and which of them are outliers."""

    slopes: Slopes
    flagged: Bools


def by_direction(
    sums: Floats, level: float, before: Bools, max_noise: float, bonferroni: bool = False
) -> Outliers:
    """The clients whose slope is an outlier at this level.

    Args:
        sums: The sums of the evidence (7, clients).
        level: The rate of false discoveries; with `bonferroni`, the probability of even one.
        before: The clients that were flagged before; they take no part in the first estimate.
        max_noise: Do not decide if the slopes are noisier than this, as a share of the median.
        bonferroni: Whether to bound the probability of any false discovery.
    """
    flagged = before.copy()
    slopes = standardized(sums, ~flagged, max_noise)
    for _ in range(MAX_PASSES):
        slopes = standardized(sums, ~flagged, max_noise)
        new = slopes.p <= level / max(1, len(slopes.p)) if bonferroni else step_up(slopes.p, level)
        if 2 * new.sum() >= max(1, judged(sums).sum()):  # not a minority: the estimate is wrong
            new = np.zeros_like(flagged)
        if np.array_equal(new, flagged):
            break
        flagged = new
    return Outliers(slopes, flagged)


def judged(sums: Floats) -> Bools:
    """The clients with enough draws and any signal."""
    enough: Bools = (sums[SUMS.index("draws")] >= MIN_DRAWS) & (sums[SUMS.index("signal")] > 0)
    return enough


def standardized(sums: Floats, unflagged: Bools, max_noise: float) -> Slopes:
    """The slopes in units of the spread of those that are not flagged."""
    draws, signal, agreement, residual = sums[:4]
    can = judged(sums)
    with np.errstate(divide="ignore", invalid="ignore"):
        slope = np.where(signal > 0, agreement / signal, np.nan)
    reference = can & unflagged
    nothing = np.zeros(len(slope)), np.ones(len(slope))
    if reference.sum() < MIN_CLIENTS:
        return Slopes(slope, *nothing, math.nan, math.nan)
    center, spread = half_spread(slope[reference])
    noise = np.full(len(slope), np.inf)
    variance = float(np.median(residual[reference] / draws[reference]))
    noise[can] = variance / signal[can]
    typical = float(np.median(noise[reference]))
    if center <= 0 or math.sqrt(typical) > max_noise * center:
        return Slopes(slope, *nothing, center, spread)
    scale = max(spread, MATERIAL * center)
    width = np.sqrt(scale**2 + np.maximum(0.0, noise - typical))
    z = np.where(can, (np.where(can, slope, 0.0) - center) / width, 0.0)
    return Slopes(slope, z, np.where(can, 2 * ndtr(-np.abs(z)), 1.0), center, scale)


def half_spread(values: Floats) -> tuple[float, float]:
    """The median, and the standard deviation that the shortest half of the values suggests.

    >>> half_spread(np.array([1.0, 1.1, 0.9, 1.05, 0.95, -5.0, -6.0]))[0]
    0.95
    """
    ordered, half = np.sort(values), len(values) // 2 + 1
    widths = ordered[half - 1 :] - ordered[: len(values) - half + 1]
    return float(np.median(values)), float(widths.min()) / (2 * HALF_WIDTH)


def step_up(p: Floats, level: float) -> Bools:
    """The procedure of Benjamini and Hochberg: which hypotheses are rejected."""
    order = np.argsort(p, kind="stable")
    passed = np.flatnonzero(p[order] <= level * np.arange(1, len(p) + 1) / max(1, len(p)))
    rejected = np.zeros(len(p), dtype=bool)
    if passed.size:
        rejected[order[: passed[-1] + 1]] = True
    return rejected


def by_copies(evidence: Evidence) -> Bools:
    """The clients that sent the same update as two or more others, and nearly as often as any."""
    draws, copied = evidence.total[0], evidence.total[SUMS.index("copied")]
    share, partners = copied / np.maximum(draws, 1), neighbors(evidence.pairs)
    flagged = np.zeros(evidence.clients, dtype=bool)
    for client, others in partners.items():
        most = max(share[other] for other in (client, *others))
        often = share[client] >= max(MIN_COPY_SHARE, RELATIVE_COPY_SHARE * most)
        flagged[client] = len(others) >= 2 and draws[client] >= MIN_DRAWS and often
    return flagged


def neighbors(pairs: Ids) -> dict[int, set[int]]:
    """Who sent the same update as whom."""
    linked: dict[int, set[int]] = {}
    for first, second, _ in pairs.tolist():
        linked.setdefault(first, set()).add(second)
        linked.setdefault(second, set()).add(first)
    return linked


def certainly_byzantine(pairs: Ids, outliers: Bools) -> int:
    """How many clients must be Byzantine, given the copies and outliers that are certain.

    Of clients that are all copies of each other, at most one is honest. Outliers that are no copies
    count one each.
    """
    linked = neighbors(pairs)
    free, count = set(linked), 0
    while free:
        clique: set[int] = set()
        for client in sorted(free, key=lambda c: (-len(linked[c] & free), c)):
            if clique <= linked[client]:
                clique.add(client)
        count += len(clique) - 1
        free -= clique
    return count + sum(client not in linked for client in np.flatnonzero(outliers).tolist())


def look_at(evidence: Evidence, round: int, fdr: float = DEFAULT_FDR) -> Evidence:
    """The evidence after the decision of this round, if one is due."""
    if not evidence.is_look:
        return evidence
    return evidence.after_look(judge(evidence, fdr).by_direction, round)


def suspects(evidence: Evidence) -> list[int]:
    """All suspects: flagged for their direction at the last look, or for copies until now."""
    return np.flatnonzero((evidence.flagged >= 0) | by_copies(evidence)).tolist()
