"""κ, the robustness coefficient that is proved for each rule, and where the proof is.

A rule A is (n, b, κ)-robust when, for every n inputs and every n−b of them, S,
‖A − mean(S)‖² ≤ κ · (1/|S|)·Σ_S ‖x − mean(S)‖². No rule has κ below r = b/(n−2b).
"own" marks a proof of this project (docs/paper-notes.md), attacked numerically by the tests.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from fedro.common.registry import Stage, Table, parse_stages


class Coefficient(NamedTuple):
    """How κ follows from n and b (and, for a mixer, from the κ of what comes after it)."""

    kappa: Callable[..., float]
    source: str
    mixer: bool = False


PROOFS: Table[Coefficient] = Table("rule, among those with a proved κ,")


def lower_bound(n: int, b: int) -> float:
    """r = b/(n−2b): no rule does better (Allouah et al. 2023)."""
    return b / (n - 2 * b)


def trimmed_mean(n: int, b: int) -> float:
    """Exactly r: trimming is minimax optimal."""
    return lower_bound(n, b)


def median(n: int, b: int) -> float:
    """(n−1)/(n+1−2b) for odd n, (n−2)/(n+2−2b) for even n."""
    return (n - 1) / (n + 1 - 2 * b) if n % 2 else (n - 2) / (n + 2 - 2 * b)


def mean(n: int, b: int) -> float:
    """0 without bad inputs, unbounded with a single one."""
    return math.inf if b else 0.0


def geometric_median(n: int, b: int) -> float:
    """4(1+r)², for the exact minimizer."""
    return 4 * (1 + lower_bound(n, b)) ** 2


def krum(n: int, b: int) -> float:
    """6(1+r), for the variant that scores n−b nearest inputs."""
    return 6 * (1 + lower_bound(n, b))


def mda(n: int, b: int) -> float:
    """min{8b²/(n−b), r(1+√(n−b−1))²}."""
    return min(8 * b * b / (n - b), lower_bound(n, b) * (1 + math.sqrt(n - b - 1)) ** 2)


def mva(n: int, b: int) -> float:
    """4r."""
    return 4 * lower_bound(n, b)


def meamed(n: int, b: int) -> float:
    """r(1+√(1+n/(n−2b)))²."""
    return lower_bound(n, b) * (1 + math.sqrt(1 + n / (n - 2 * b))) ** 2


def nnm(n: int, b: int, inner: float) -> float:
    """8b/(n−b)·(κ+1)."""
    return 8 * b / (n - b) * (inner + 1)


def arc(n: int, b: int, inner: float) -> float:
    """κ+2r."""
    return inner + 2 * lower_bound(n, b)


PROOFS["mean"] = Coefficient(mean, "trivial")
PROOFS["trimmed_mean"] = Coefficient(trimmed_mean, "own")
PROOFS["median"] = Coefficient(median, "own")
PROOFS["geometric_median"] = Coefficient(geometric_median, "Allouah et al. 2023")
PROOFS["krum"] = Coefficient(krum, "Allouah et al. 2023")
PROOFS["mda"] = Coefficient(mda, "own")
PROOFS["mva"] = Coefficient(mva, "own")
PROOFS["meamed"] = Coefficient(meamed, "own")
PROOFS["nnm"] = Coefficient(nnm, "Allouah et al. 2023", mixer=True)
PROOFS["arc"] = Coefficient(arc, "Allouah et al. 2025", mixer=True)


def pipeline_kappa(rule: str | Sequence[Stage]) -> Callable[[int, int], float]:
    """κ(n, b) of a rule like ``"nnm | trimmed_mean"``: from right to left."""
    *mixers, last = parse_stages(rule) if isinstance(rule, str) else rule
    entries = [_entry(stage, mixer=True) for stage in mixers]
    final = _entry(last, mixer=False)

    def kappa(n: int, b: int) -> float:
        value = final.kappa(n, b)
        for entry in reversed(entries):
            value = entry.kappa(n, b, value)
        return value

    return kappa


def _entry(stage: Stage, *, mixer: bool) -> Coefficient:
    entry, options = PROOFS[stage.name], stage.options.keys() - {"b"}
    if options:
        raise ValueError(
            f"no κ is proved for {stage.name} with {', '.join(sorted(options))} set: leave it out, "
            "or plan with max_fraction and another rule's κ"
        )
    if entry.mixer != mixer:
        place = "comes before a rule, as in 'nnm | trimmed_mean'" if entry.mixer else "comes last"
        raise ValueError(f"{stage.name} {place}")
    return entry
