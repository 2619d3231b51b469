"""Rules under hostile matrices: NaN, Inf, denormals, 1e38, equal rows, rank one, large n̂, d = 1.

python tests/soak/hostile.py --matrices 10000

Up to b rows of each matrix are bad. The answer must be finite, and where κ is proved, within
κ times the variance of the other rows.
"""

import argparse
import math
import time
from typing import Any, NamedTuple

import numpy as np

from fedro import kernels
from fedro.rules import Rule
from rule_cases import FINAL, PIPELINES, make, reference_for, usable

TEXTS = [*FINAL, *PIPELINES]
SIZES = [3, 4, 5, 7, 9, 11, 15, 26]
LARGE = [57, 101, 301]
SEARCHES = {"mda", "mva", "smea"}  # of all subsets: few rows only
POISON = [np.nan, np.inf, -np.inf, 3e38, -3e38, 1e38, 1e30, 1e-42, -1e-45, 0.0]


class Case(NamedTuple):
    """A matrix, and which of its rows are bad."""

    x: Any
    bad: Any


def honest_rows(rng: np.random.Generator, n: int, d: int) -> Any:
    """Rows as clients could send them, and as nobody would expect."""
    x = rng.standard_normal((n, d))
    kind = rng.integers(8)
    if kind == 0:
        x[:] = x[0]  # all equal
    elif kind == 1:
        x = np.outer(rng.standard_normal(n), x[0])  # rank one
    elif kind == 2:
        x = rng.integers(-1, 2, (n, d)).astype(float)  # many ties
    elif kind == 3:
        x = x + 1e4  # far from the origin
    elif kind == 4:
        x[:, rng.integers(d)] *= 1e6
    return x * 10.0 ** rng.choice([0, 0, 0, -40, -30, -10, 10, 18])


def draw(rng: np.random.Generator, n: int, b: int, d: int, dtype: str) -> Case:
    """A matrix with at most b bad rows."""
    x = honest_rows(rng, n, d)
    bad = rng.choice(n, rng.integers(0, b + 1), replace=False)
    for row in bad:
        how = rng.integers(4)
        if how == 0:
            x[row] = rng.choice(POISON, d)
        elif how == 1:
            x[row, rng.integers(d)] = rng.choice(POISON)
        elif how == 2:
            x[row] = x[rng.integers(n)] * 10.0 ** rng.uniform(-8, 8)
        else:
            x[row] = rng.choice(POISON)
    with np.errstate(over="ignore"):
        return Case(x.astype(dtype), bad)


def violation(rule: Rule, case: Case, b: int) -> str | None:
    """What is wrong with the rule's answer, if anything."""
    honest = np.delete(case.x, case.bad, axis=0).astype(np.float64)
    got = np.asarray(rule(case.x, **reference_for(rule, honest.astype(case.x.dtype))))
    if not np.isfinite(got).all():
        return "not finite"
    if rule.kappa(len(case.x)) is None:
        return None
    kappa = kappa_for(rule, len(case.x), b, len(honest))
    center = honest[0] + (honest - honest[0]).mean(axis=0)  # exact for equal rows
    size = float(np.abs(honest).max())
    scale = size if size > 0 else 1.0
    variance = (((honest - center) / scale) ** 2).sum(axis=1).mean()
    error = (((got - center) / scale) ** 2).sum()
    info, (n, d) = np.finfo(case.x.dtype), case.x.shape
    steps = max(4.0, n / 2)  # a sum of n numbers is off by at most n/2 units in the last place
    rounding = math.sqrt(d) * (steps * float(info.eps) + float(info.tiny) / scale)
    if math.sqrt(error) <= math.sqrt(kappa * variance * (1 + 1e-4)) + rounding:
        return None
    return f"‖A − mean‖² = {error:.3g} > κ·variance = {kappa:.3g}·{variance:.3g}"


def kappa_for(rule: Rule, n: int, b: int, honest: int) -> float:
    """κ is for sets of m = n−b rows; what follows of it for h > m honest ones.

    In the mean over the subsets S of size m, ‖A − mean(S)‖² is at least ‖A − mean‖², and the
    variance is that of all h rows times h(m−1)/((h−1)m).
    """
    m = n - b
    kappa = float(rule.kappa(n) or 0.0)
    return kappa if honest <= m else kappa * honest * (m - 1) / max((honest - 1) * m, 1)


def soak(text: str, matrices: int, seed: int) -> tuple[int, list[str]]:
    """How many were tried, and the violations found."""
    rng, found, tried = np.random.default_rng([seed, TEXTS.index(text)]), [], 0
    searches = bool(SEARCHES & set(text.replace("|", " ").split()))
    while tried < matrices:
        large = not searches and rng.random() < 0.005
        n = int(rng.choice(LARGE if large else SIZES[:5] if searches else SIZES))
        b = 0 if text == "mean" else int(rng.integers(0, (n - 1) // 2 + 1))
        if not usable(text, n, b):
            continue
        d = int(rng.choice([1, 2, 3, 17, 64]))
        dtype = str(rng.choice(["float32", "float64"]))
        tried += 1
        case = draw(rng, n, b, d, dtype)
        kernels.MIN_COMPILED_SIZE = 0 if rng.random() < 0.5 else 1 << 17  # both back ends
        try:
            wrong = violation(make(text, b), case, b)
        except ValueError as error:
            wrong = f"refused: {error}"
        if wrong:
            found.append(f"{text} n={n} b={b} d={d} {dtype} number {tried}: {wrong}")
    return tried, found


def main() -> None:
    """From the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--matrices", type=int, default=10_000, help="for each rule")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=TEXTS, help="one rule or pipeline")
    chosen = parser.parse_args()
    total, wrong, began = 0, 0, time.monotonic()
    for text in TEXTS if chosen.only is None else [chosen.only]:
        tried, found = soak(text, chosen.matrices, chosen.seed)
        total, wrong = total + tried, wrong + len(found)
        print(f"{text}: {tried} matrices, {len(found)} violations", flush=True)
        print("".join(f"  {line}\n" for line in found[:5]), end="", flush=True)
    seconds = time.monotonic() - began
    print(f"{total} matrices (seed {chosen.seed}), {wrong} violations, {seconds:.0f} s")
    raise SystemExit(wrong > 0)


if __name__ == "__main__":
    main()
