"""Small errors put into each rule's core on purpose; a test must notice every one.

python tests/soak/mutants.py

Each mutant is a copy of the package with one change, on which some tests are run until one fails.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
TIMEOUT = 300.0  # seconds for some tests


class Mutant(NamedTuple):
    """A change of one place in one file."""

    file: str
    old: str
    new: str
    tests: str = "tests/rules"


def rules(name: str, *changes: tuple[str, str]) -> list[Mutant]:
    """Changes of a file of rules."""
    return [Mutant(f"rules/{name}.py", old, new) for old, new in changes]


def kernels(name: str, *changes: tuple[str, str]) -> list[Mutant]:
    """Changes of a file of kernels."""
    return [Mutant(f"kernels/{name}.py", old, new, "tests/kernels") for old, new in changes]


def attacks(name: str, *changes: tuple[str, str]) -> list[Mutant]:
    """Changes of a file of attacks."""
    return [Mutant(f"attacks/{name}.py", old, new, "tests/attacks") for old, new in changes]


MUTANTS = [
    *rules(
        "coordinate",
        ("rows.band((rows.n - 1) // 2,", "rows.band(rows.n // 2,"),
        ("rows.band(rows.b, rows.n - rows.b)", "rows.band(rows.b, rows.n - rows.b + 1)"),
        ("rows.band(rows.b, rows.n - rows.b)", "rows.band(max(rows.b - 1, 0), rows.n - rows.b)"),
        ("nearest=rows.n - rows.b)", "nearest=rows.n - rows.b - 1)"),
        ("limit / np.maximum(rows.norms,", "limit / np.minimum(rows.norms,"),
        ("mean_of(np.arange(rows.n)))", "mean_of(np.arange(1, rows.n)))"),
    ),
    *rules(
        "selection",
        ("ordered[:, : n - b].sum", "ordered[:, : n - b - 1].sum"),
        ("ordered[:, 1 : n - b - 1].sum", "ordered[:, 1 : n - b].sum"),
        ("int(np.argmin(krum_scores", "int(np.argmax(krum_scores"),
        ("if n < 2 * b + 3", "if n < 2 * b + 2"),
        ("largest = rows.n - rows.b - 2 if original", "largest = rows.n - rows.b - 1 if original"),
        ("np.argsort(values, kind=\"stable\")[:k]", "np.argsort(-values, kind=\"stable\")[:k]"),
        ("diameter(rows.sq, rows.n - rows.b)", "diameter(rows.sq, rows.n - rows.b - 1)"),
        ("variance(rows.sq, rows.n - rows.b)", "variance(rows.sq, rows.n - rows.b - 1)"),
        ("spread(rows.sq, rows.n - rows.b)", "spread(rows.sq, rows.n - rows.b - 1)"),
        ("range(rows.n - 2 * rows.b)", "range(rows.n - 2 * rows.b - 1)"),
        ("len(left) - rows.b - 2)", "len(left) - rows.b - 1)"),
        ("nearest=len(picks) - 2 * rows.b", "nearest=len(picks) - rows.b"),
        ("smallest(rows.reference_sq, rows.n - rows.b)", "smallest(rows.reference_sq, rows.n)"),
    ),
    *rules(
        "subsets",
        ("_cover(sq > values[middle]", "_cover(sq >= values[middle]"),
        ("if 1 < most <= room:", "if 1 < most < room - 1:"),
        ("np.sort(reach)[size - 1]", "np.sort(reach)[size]"),
        ("if sums.flat[at] < least", "if sums.flat[at] > least"),
        ("        if value < least:", "        if value > -1:"),
        ("if traces[at] >= least * max(size - 1, 1)", "if traces[at] >= least"),
    ),
    *rules(
        "center",
        ("weights = weiszfeld(sq, sizes, tolerance)", "weights = weiszfeld(sq, sizes, 1e-1)"),
        ("<= sizes[~away].sum()", "<= 2 * sizes[~away].sum()"),
        ("if not trustworthy(sq, weights):", "if False:"),
        ("np.minimum(1.0, tau / np.sqrt", "np.maximum(1.0, tau / np.sqrt"),
        ("weights = weights * (1 - cut.sum()) + cut", "weights = weights + cut"),
        ("/ lengths[known], 0.0, 1.0)", "/ lengths[known], -1.0, 1.0)"),
        ("weights[known] *= rows.reference_norm / rows.norms[known]", "pass"),
    ),
    *rules(
        "spectral",
        ("if value < least:", "if value <= np.inf:"),
        ("deviations[left > 0].max()", "deviations.max()"),
        ("left.sum() > rows.n - 2 * rows.b", "left.sum() > rows.n - rows.b"),
        ("smallest(deviations, rows.n - drop)", "smallest(deviations, rows.n - drop + 1)"),
        ("(1 - RELATIVE_TIE) * largest", "largest"),
    ),
    *rules(
        "mixers",
        ("kind=\"stable\")[:, : rows.n - rows.b]", "kind=\"stable\")[:, : rows.n - rows.b - 1]"),
        ("np.fill_diagonal(sq, -1.0)", "np.fill_diagonal(sq, np.inf)"),
        ("order[i : i + s]", "order[i : i + s - 1]"),
        ("k = 2 * rows.b * (rows.n - rows.b) // rows.n", "k = rows.b"),
        ("[rows.n - 1 - k]", "[rows.n - k - 2]"),
        ("factor * rows.reference_norm", "factor"),
    ),
    *rules(
        "rows",
        ("self.picked[mask], self.b - int((~mask).sum())", "self.picked[mask], self.b"),
        ("FAR = 2.0**20", "FAR = 2.0**200"),
        ("np.maximum(a @ reached - 0.5 * own, 0.0)", "np.maximum(a @ reached, 0.0)"),
        ("rest = 1.0 - self.affine.sum(axis=1)", "rest = 0.0 * self.affine.sum(axis=1)"),
    ),
    *kernels(
        "compiled/distances",
        ("SHRINK, GROW = 2.0**-72,", "SHRINK, GROW = 2.0**-40,"),
        ("if value < safe[0]", "if value < 0"),
        ("                tile[:] = 0.0", "                pass"),
        ("if pairs[k, 1] >= m:", "if pairs[k, 1] > m:"),
        (
            "bad, result)\n        if right == stop or (right - start + skip) % GRID == 0",
            "bad, result)\n        if right == stop or False",
        ),
        ("            exact_moments(x, rows, left, right, m, s, bad)\n", ""),
        ("    tile[:] = 0.0\n    for i", "    for i"),
        (
            "+= totals[k]\n        if right == stop or (right - start + skip) % GRID == 0:\n"
            "            add_to_matrix(result, pairs, out[(left - start + skip) // GRID])",
            "+= totals[k]\n        if right == stop or (right - start + skip) % GRID == 0:\n"
            "            add_to_matrix(result, pairs, out[(left - start) // GRID])",
        ),
    ),
    *kernels(
        "compiled/order_statistics",
        ("for k in range(count, n):", "for k in range(count + 1, n):"),
        ("b if center[c] - a > b - center[c] else a", "b if center[c] - a >= b - center[c] else a"),
        ("share, last = 1.0 / (high - low),", "share, last = 1.0 / (high - low + 1),"),
    ),
    *kernels(
        "compiled/sums",
        ("out[0] += squared", "out[0] = squared"),
        ("stop), out[(left - start + skip) // GRID]", "stop), out[(left - start) // GRID]"),
        ("range(0, rows.size, MAX_ROWS_TOGETHER)", "range(0, min(rows.size, 16), 16)"),
        ("dots[(left - start + skip) // GRID]", "dots[(left - start) // GRID]"),
        ("own[:] = 0.0", "pass"),
    ),
    *kernels("compiled/tiles", ("return probe != zero", "return False")),
    *kernels(
        "vectors/sums",
        ("dots.load(lane)", "source.load(position, column)"),
        ("((lowest, square), (square, highest))", "((square, highest),)"),
        ("builder.or_(fits, same)", "fits"),
        ("builder.or_(fits, same)", "builder.or_(fits, builder.not_(fits))"),
    ),
    *kernels(
        "numba_backend",
        ("total[bad] = total[:, bad] = np.inf", "pass"),
        ("return bool(low <= np.abs", "return bool(-1 <= np.abs"),
        ("ends = (0, nearest, nearest) if nearest", "ends = (0, nearest, 0) if nearest"),
    ),
    *attacks(
        "dispersion",
        ("0.5 * sq.sum() / h**2", "sq.sum() / h**2"),
        ("finite = finite & more.finite", "pass"),
        ("deviations + self.spread**2 - self.sq", "deviations - self.sq"),
    ),
    *attacks(
        "mimicry",
        ("ROUNDING_UNITS = 32", "ROUNDING_UNITS = 0"),
        ("share = 1 / (rounds + 1)", "share = 1 / (rounds + 2)"),
        ("plus = (-float(weights.sum()), mean)", "plus = (0.0, mean)"),
        ("of_z * dots + of_s * on_s", "dots"),
        ("np.argmax(scores)", "np.argmin(scores)"),
    ),
    *attacks(
        "view",
        ("if declared is None:", "if False:"),
        ("or declared.to & self._knows", "or declared.to"),
        ('@visible("honest updates")\n    def honest_mean', "def honest_mean"),
    ),
]  # fmt: skip


FAST = ["-m", "not slow"]
NO_TESTS = 5  # what pytest answers if none was chosen


def survives(mutant: Mutant, package: Path) -> bool:
    """Whether all its tests pass, though the code is wrong; without an end is not passed.

    First those that name the function, then the fast ones, then all.
    """
    file = package / "fedro" / mutant.file
    original = file.read_text()
    if original.count(mutant.old) < 1:
        raise ValueError(f"{mutant.file} does not have {mutant.old!r}: mend the list of mutants")
    name = re.findall(r"^def (\w+)", original[: original.index(mutant.old)], re.MULTILINE)[-1:]
    file.write_text(original.replace(mutant.old, mutant.new, 1))
    try:
        steps = ([*FAST, "-k", *name] if name else FAST, FAST, [])
        return all(run_tests(mutant.tests, package, step) in (0, NO_TESTS) for step in steps)
    except subprocess.TimeoutExpired:
        return False
    finally:
        file.write_text(original)


def run_tests(tests: str, package: Path, chosen: list[str]) -> int:
    """The exit code of some tests on the copy."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *chosen]
    environment = {**os.environ, "PYTHONPATH": str(package), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [*command, str(ROOT / tests)],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
    )
    if done.returncode not in (0, 1, NO_TESTS):
        raise RuntimeError(done.stdout + done.stderr)
    return done.returncode


@contextmanager
def copied() -> Iterator[Path]:
    """A folder with a copy of the package, with its compiled kernels."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(ROOT / "src" / "fedro", Path(folder) / "fedro")
        yield Path(folder)


def soak(mutants: list[Mutant]) -> list[Mutant]:
    """The mutants that no test noticed."""
    with copied() as package:
        found = []
        for tests in sorted({mutant.tests for mutant in mutants}):
            if run_tests(tests, package, FAST):
                raise RuntimeError(f"{tests} fail without any change")
        for mutant in mutants:
            began = time.monotonic()
            left = survives(mutant, package)
            fate = "SURVIVED" if left else "caught"
            what = f"{mutant.old.strip()}  →  {mutant.new.strip()}".replace("\n", "⏎")
            print(f"{fate} {time.monotonic() - began:5.1f} s  {mutant.file}: {what}", flush=True)
            if left:
                found.append(mutant)
        return found


def main() -> None:
    """From the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="a part of the file's name or of the change")
    only = parser.parse_args().only
    chosen = [m for m in MUTANTS if only in m.file or only in m.old]
    left = soak(chosen)
    print(f"{len(chosen)} mutants, {len(chosen) - len(left)} caught, {len(left)} survived")
    raise SystemExit(len(left) > 0)


if __name__ == "__main__":
    main()
