"""Rules in units of `x.sum()` over the same matrix, beside ByzFL and ByzPy.

python benchmarks/rules.py                 prints the tables
python benchmarks/rules.py --write docs    also writes docs/speed.md and docs/images/speed.png
"""

import argparse
import datetime
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

os.environ["GOMP_SPINCOUNT"] = "10000"  # as the command `fedro` does, before torch is loaded

import numpy as np
import torch
from timing import Timed, measure, once

sys.path.insert(0, str(Path(__file__).parents[1] / "tests/helpers"))
import peers
from fedro.rules import parse_rule

N, B, D = 26, 11, 2_368_318
ABOUT_RULES = """
A unit is the time of `x.sum()` over the same matrix. Units are the median of ratios, so they do not
follow exactly from the milliseconds. Our goal is at most `limit` units, and a speedup of at least
`required` over the faster of ByzFL and ByzPy, whose columns are in milliseconds.
"""
ABOUT_OTHER_SIZES = """
Dropouts change n̂ from round to round. This table runs 20 other pairs of n̂ (12 to 26) and b̂ in
sequence and shows the slowest pair of each rule. Its time is a share of the limit above, scaled by
n̂; up to 1.5 is allowed.
"""
LIMITS = {  # units, and how many times faster than the best peer
    "trimmed_mean": (4, 30),
    "median": (4, 30),
    "meamed": (6, 40),
    "krum": (5, 5),
    "multi_krum": (5, 5),
    "geometric_median": (6, 10),
    "nnm | trimmed_mean": (9, 18),
}
ALSO = ["mean", "mda", "caf", "arc | trimmed_mean", "nnm | krum", "nnm | geometric_median"]


def updates(n: int, d: int) -> torch.Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(n))


def ours(names: list[str], x: torch.Tensor, b: int, times: int) -> dict[str, Timed]:
    """Our times, and the unit's."""
    actions: dict[str, Callable[[], object]] = {}
    for name in names:
        rule = parse_rule(name, b=b)
        rule(x)  # compiled, cached, warm
        actions[name] = lambda rule=rule: rule(x)
    return measure(x.sum, actions, times)


def theirs(make: Callable[..., Callable[..., object]], name: str, x: torch.Tensor) -> float | None:
    """A peer's time for a rule or a pipeline, once; None where it has none."""
    try:
        stages = [make(stage, B) for stage in name.split(" | ")]
    except KeyError:
        return None
    seconds, rows = 0.0, x
    for stage in stages:
        result: list[object] = []
        seconds += once(lambda stage=stage, rows=rows, result=result: result.append(stage(rows)))
        rows = torch.from_numpy(np.asarray(result[0], dtype=np.float32))
    return seconds


def main_table(with_peers: bool) -> Iterator[str]:
    x = updates(N, D)
    best = ours([*LIMITS, *ALSO], x, B, 10)
    threads, unit = torch.get_num_threads(), 1e3 * best.pop("unit").seconds
    yield "## Rules\n"
    yield f"n̂={N}, b̂={B}, d={D:,}, float32, {threads} threads; one unit is {unit:.1f} ms at best."
    yield ABOUT_RULES
    yield "| rule | ms | units | limit | ByzFL | ByzPy | speedup | required |"
    yield "|---|---|---|---|---|---|---|---|"
    for name, (seconds, units) in best.items():
        limit, wanted = LIMITS.get(name, ("", ""))
        found = [
            theirs(make, name, x) if with_peers and name in LIMITS else None
            for make in (peers.byzfl_rule, peers.byzpy_rule)
        ]
        known = [t for t in found if t is not None]
        ratio = f"{min(known) / seconds:.0f}" if known else ""
        cells = [f"{1e3 * t:,.0f}" if t is not None else "" for t in found]
        yield (
            f"| {name.replace('|', chr(92) + '|')} | {1e3 * seconds:.1f} | {units:.1f} "
            f"| {limit} | {cells[0]} | {cells[1]} | {ratio} | {wanted} |"
        )


def unseen_table() -> Iterator[str]:
    """Other n̂ and b̂ every round compile nothing: times against the limits, scaled by n̂."""
    x, rng = updates(N, D), np.random.default_rng(0)
    worst = dict.fromkeys(LIMITS, (0.0, 0, 0))
    for _ in range(20):
        n = int(rng.integers(12, 27))
        b = int(rng.integers(1, (n - 1) // 2 + 1))
        found = ours([*LIMITS], x[:n], b, 3)
        for name, (limit, _) in LIMITS.items():
            worst[name] = max(worst[name], (found[name].units / limit, n, b))
    yield "\n## Changing n̂ and b̂"
    yield ABOUT_OTHER_SIZES
    yield "| rule | slowest | n̂ | b̂ |\n|---|---|---|---|"
    for name, (share, n, b) in worst.items():
        yield f"| {name.replace('|', chr(92) + '|')} | {share:.2f} | {n} | {b} |"


def growth() -> tuple[list[str], dict[tuple[str, int, int], float]]:
    """How the time grows with n̂ and d."""
    lines = ["\n## Growth with n̂ and d\n"]
    lines += ["Times in units of `x.sum()` over the same matrix, with b̂ = ⌊0.4n̂⌋.\n"]
    names = ["trimmed_mean", "median", "meamed", "krum", "geometric_median", "nnm | trimmed_mean"]
    lines += ["| n̂ | d | unit, ms | " + " | ".join(n.replace("|", "\\|") for n in names) + " |"]
    lines += ["|---" * (3 + len(names)) + "|"]
    found: dict[tuple[str, int, int], float] = {}
    sizes = [(n, 10**6) for n in (11, 26, 57, 101, 301)] + [(26, 10**4), (26, 10**7)]
    for n, d in sizes:
        x = updates(n, d)
        best = ours(names, x, int(0.4 * n), 3 if n * d > 10**8 else 7)
        for name in names:
            found[name, n, d] = best[name].seconds
        cells = " | ".join(f"{best[name].units:.1f}" for name in names)
        lines.append(f"| {n} | {d:,} | {1e3 * best['unit'].seconds:.2f} | {cells} |")
    return lines, found


def draw(found: dict[tuple[str, int, int], float], path: Path) -> None:
    from fedro.common.figures import STYLE, plain_ticks, plt, save

    with plt.rc_context(STYLE):
        figure, axes = plt.subplots()
        for name in dict.fromkeys(key[0] for key in found):
            points = sorted((n, t) for (k, n, d), t in found.items() if k == name and d == 10**6)
            axes.plot([n for n, _ in points], [1e3 * t for _, t in points], "o-", label=name)
        axes.set(xscale="log", yscale="log", xlabel="rows, n̂", ylabel="milliseconds, d = 10⁶")
        plain_ticks(axes.xaxis)
        plain_ticks(axes.yaxis)
        axes.legend()
    save(figure, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", type=Path, help="a docs folder")
    parser.add_argument("--quick", action="store_true", help="the main table without the peers")
    options = parser.parse_args()
    lines = []

    def say(line: str) -> None:
        print(line, flush=True)
        lines.append(line)

    for line in main_table(with_peers=not options.quick):
        say(line)
    if options.quick:
        return
    for line in unseen_table():
        say(line)
    grown, found = growth()
    for line in grown:
        say(line)
    if options.write:
        today = datetime.date.today().isoformat()
        cores = os.cpu_count()
        title = f"# Speed\n\n`make bench` measured these times on {today} with {cores} cores.\n"
        picture = "\n![Milliseconds over the number of updates](images/speed.png)\n"
        text = "\n".join([title, *lines, picture])
        page = options.write / "speed.md"
        _, heading, training = page.read_text().partition("\n## Training\n")
        page.write_text(text + heading + training)  # what other benchmarks have measured stays
        draw(found, options.write / "images" / "speed.png")


if __name__ == "__main__":
    main()
