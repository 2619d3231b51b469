"""Figure 2: below which n̂ does training fail, where bad clients who are too many take over?"""

from itertools import takewhile
from pathlib import Path
from statistics import fmean

import matplotlib.pyplot as plt
from matplotlib.figure import Figure as Picture

from fedro.common.figures import STYLE
from fedro.common.palette import BLUE, GREY, RED
from fedro.paper.verdicts import binomial_p_value
from fedro.paper.figure import SMALL_MODEL, data_notes
from fedro.paper.figure import (
    FigureRequest,
    PaperFigure,
    ClaimResult,
    FigurePanel,
    Row,
    FigureRuns,
    Verdict,
    select_datasets,
    make_panel,
    final_results,
    describe_keys,
)
from fedro.planning.tails import all_draws_within
from fedro.simulation.experiment import Experiment, read_experiment

SIZES: tuple[int, ...] = (1, 6, 11, 16, 21, 26, 31, 36, 41, 46, 51, 56)
THRESHOLD = 30  # where the paper sees it
FAILED = 0.5  # a run failed if it has less than this part of the accuracy at the largest n̂
RARE = 0.05
BETWEEN = 2  # sizes at which some seeds fail and others do not: so wide may a threshold be
SEEDS = 3  # from which on counts can be held against a probability


def plan_runs(request: FigureRequest) -> FigureRuns:
    """The runs at a scale."""
    base, reductions, sizes, seeds, name = read_experiment("femnist-takeover"), [], SIZES, 5, "femnist"
    if request.scale == "desk":
        base = base.replace(model=SMALL_MODEL, local_steps=5, batch_size=8, evaluate_every=100)
        reductions = [
            "a perceptron with 64 hidden units on normalized images for the CNN",
        ]
    if request.scale == "smoke":
        name, sizes, seeds = "digits", (1, 4, 7, 10, 13, 16, 21), 2
        base = smoke(base).replace(byzantine=10)
        reductions = ["digits, 50 clients of whom 10 are bad, 40 rounds"]
    points = {
        f"sampled={n}": ({"sampled": n, "tolerated": b}, base.replace(sampled=n, tolerated=b))
        for n in sizes
        for b in [tolerated(n, request.reading)]
    }
    setting = f"n = {base.clients}, b = {base.byzantine}, T = {base.rounds}"
    facts = {"base": select_datasets({name: base}, request)[name], "reading": request.reading}
    part = make_panel(name, setting, points, request.seeds or seeds, **facts)
    choices = [
        *data_notes([name]),
        "b̂ = ⌊n̂/2⌋ − 1 (0 for n̂ = 1) as in the paper's table"
        if request.reading == "table"
        else "b̂ = ⌈n̂/2⌉ − 1, the largest below half, for the text's b̂ = ⌊n̂/2⌋",
        "the bad clients take over when |B_t| > b̂; the paper does not say what happens at = b̂",
        f"not stated in the paper: {describe_keys([part], 'local_steps', 'batch_size')}",
        f"a run has failed if its accuracy is below {FAILED:.0%} of that at n̂ = {sizes[-1]}",
    ]
    if request.scale == "desk":
        choices.append("T = 500 as in the paper: the threshold depends on it")
    return FigureRuns([part], choices, reductions)


def smoke(base: Experiment) -> Experiment:
    """A figure's setting in seconds: the demo's data and model."""
    small = {"rounds": 40, "local_steps": 5, "client_lr": 0.1, "evaluate_every": 10}
    kept = {"attack": base.attack, "rule": base.rule, "l2": base.l2}
    return read_experiment("demo").replace(**small, **kept)


def tolerated(sampled: int, reading: str) -> int:
    """b̂, as the table has it or as the text does."""
    return max(0, sampled // 2 - 1) if reading == "table" else (sampled - 1) // 2


def no_overrun_probability(part: FigurePanel, sampled: int, allowed: int) -> float:
    """The exact probability that |B_t| ≤ b̂ in all rounds."""
    base: Experiment = part.facts["base"]
    assert base.clients is not None
    return all_draws_within(allowed, base.clients, base.byzantine, sampled, base.rounds)


def tabulate(runs: FigureRuns, folder: Path) -> list[Row]:
    """The runs, with whether each failed (None without a run to compare with) and how likely."""
    (part,) = runs.panels
    rows = final_results(runs, folder)
    largest = max(settings["sampled"] for settings, _ in part.runs.values())
    best = {row["seed"]: row["accuracy"] for row in rows if row["sampled"] == largest}
    for row in rows:
        known = row["seed"] in best
        row["safe_probability"] = no_overrun_probability(part, row["sampled"], row["tolerated"])
        row["failed"] = row["accuracy"] < FAILED * best[row["seed"]] if known else None
    return rows


def judge(runs: FigureRuns, rows: list[Row]) -> list[ClaimResult]:
    """Is there a threshold, is it at 30, and does chance explain it?"""
    rows = [row for row in rows if row["failed"] is not None]
    failed: dict[int, list[bool]] = {}
    for row in sorted(rows, key=lambda row: row["sampled"]):
        failed.setdefault(row["sampled"], []).append(row["failed"])
    expected = {row["sampled"]: 1 - row["safe_probability"] for row in rows}
    enough = bool(failed) and min(map(len, failed.values())) >= 2
    results = [_threshold(failed, enough), _taken_over(rows), _chance(failed, expected)]
    if runs.panels[0].facts["base"].dataset == "femnist":
        results.insert(1, _at_thirty(failed, expected, enough))
    return results


def _threshold(failed: dict[int, list[bool]], enough: bool) -> ClaimResult:
    below = list(takewhile(lambda n: all(failed[n]), failed))
    above = list(takewhile(lambda n: not any(failed[n]), reversed(failed)))
    between = len(failed) - len(below) - len(above)
    verdict: Verdict = "undecided"
    if below and above and enough:
        verdict = "held" if between <= BETWEEN else "not held"
    counts = ", ".join(f"{n}: {sum(found)}/{len(found)}" for n, found in failed.items())
    top, bottom = max(below, default="none"), min(above, default="none")
    return ClaimResult(
        "There is an n̂ below which training fails and from which on it does not.",
        verdict,
        f"Failed runs by n̂: {counts}. All failed up to n̂ = {top}, none from {bottom} on.",
    )


def _at_thirty(failed: dict[int, list[bool]], expected: dict[int, float], enough: bool) -> ClaimResult:
    worked = [n for n, found in failed.items() if n < THRESHOLD and not all(found)]
    broke = [n for n, found in failed.items() if n > THRESHOLD and any(found)]
    near = ", ".join(f"{expected[n]:.1%} at {n}" for n in failed if abs(n - THRESHOLD) < 10)
    below = f"some at n̂ = {worked} did not fail" if worked else "all failed"
    above = f"some at n̂ = {broke} did" if broke else "none did"
    whole = enough and set(failed) == set(SIZES)
    return ClaimResult(
        f"FedRo fails when fewer than {THRESHOLD} clients are sampled, and not when more are.",
        "not held" if worked or broke else "held" if whole else "undecided",
        f"Of the runs below it {below}; of those above it {above}. The exact probabilities of "
        f"failure near it: {near}.",
    )


def _taken_over(rows: list[Row]) -> ClaimResult:
    odd = [row["run"] for row in rows if row["failed"] != (row["takeovers"] > 0)]
    times = sum(row["takeovers"] > 0 for row in rows)
    return ClaimResult(
        "A run fails if, and only if, more than b̂ bad clients are sampled in some round.",
        "not held" if odd else "held" if 0 < times < len(rows) else "undecided",
        f"That happened in {times} of {len(rows)} runs. "
        + (f"Otherwise than it says: {', '.join(odd)}." if odd else "Those failed, and no other."),
    )


def _chance(failed: dict[int, list[bool]], expected: dict[int, float]) -> ClaimResult:
    odd = {n: binomial_p_value(sum(found), len(found), expected[n]) for n, found in failed.items()}
    unlikely = [n for n in failed if odd[n] < RARE / len(failed)]
    numbers = ", ".join(f"{n}: {expected[n]:.1%}" for n in failed)
    seeds = min(map(len, failed.values()), default=0)
    return ClaimResult(
        "It fails as often as the exact probability says.",
        "not held" if unlikely else "held" if seeds >= SEEDS else "undecided",
        f"Exact probability of more than b̂ in one of T rounds: {numbers}. "
        + (f"Counts too unlikely: {unlikely}." if unlikely else "No count is out of the ordinary."),
    )


def draw(runs: FigureRuns, rows: list[Row]) -> Picture:
    """Accuracy over n̂, and how often it failed beside how often it should."""
    (part,) = runs.panels
    sizes = sorted({row["sampled"] for row in rows})
    known = [row for row in rows if row["failed"] is not None]
    with plt.rc_context(STYLE):
        figure, (upper, lower) = plt.subplots(2, 1, sharex=True, figsize=(7.2, 6.0))
        means = [fmean(row["accuracy"] for row in rows if row["sampled"] == n) for n in sizes]
        upper.plot(sizes, [100 * mean for mean in means], color=BLUE, label="mean over seeds")
        upper.plot(
            [row["sampled"] for row in rows],
            [100 * row["accuracy"] for row in rows],
            "o",
            color=BLUE,
            alpha=0.45,
            ms=5,
            label="one run",
        )
        upper.set_ylabel("accuracy of the final model (%)")
        upper.set_ylim(0, 100)
        upper.legend(loc="upper left")
        upper.set_title(part.title, loc="left")
        base: Experiment = part.facts["base"]
        finest, reading = range(1, sizes[-1] + 1), part.facts["reading"]
        curve = [1 - no_overrun_probability(part, n, tolerated(n, reading)) for n in finest]
        lower.plot(list(finest), [100 * value for value in curve], color=GREY, lw=1, zorder=1)
        expected = [100 * curve[n - 1] for n in sizes]
        lower.plot(sizes, expected, "s", mfc="none", color=GREY, label="exact probability")
        counted = sorted({row["sampled"] for row in known})
        share = [100 * fmean(r["failed"] for r in known if r["sampled"] == n) for n in counted]
        lower.plot(counted, share, "o", color=RED, label="runs that failed")
        lower.set_ylabel("training fails (%)")
        lower.set_ylim(-4, 104)
        lower.set_xticks(sizes)
        lower.set_xlabel("clients sampled each round, n̂")
        lower.legend(loc="upper right")
        if base.dataset == "femnist":
            for axes in (upper, lower):
                axes.axvline(THRESHOLD, color=RED, ls=":", lw=1)
            upper.annotate(
                "the paper's threshold",
                (THRESHOLD, 4),
                xytext=(4, 0),
                textcoords="offset points",
                color=RED,
                fontsize=9,
            )
        figure.tight_layout()
    return figure


FIGURE = PaperFigure("Accuracy over the number of sampled clients", plan_runs, judge, draw, tabulate)
