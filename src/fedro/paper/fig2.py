"""Figure 2: below which n̂ does training fail if an overrun lets the attackers take over?"""

from itertools import takewhile
from pathlib import Path
from statistics import fmean

import matplotlib.pyplot as plt
from matplotlib.figure import Figure as Picture

from fedro.common.figures import STYLE
from fedro.common.palette import BLUE, GREY, RED
from fedro.paper.figure import (
    SMALL_MODEL,
    ClaimResult,
    FigurePanel,
    FigureRequest,
    FigureRuns,
    PaperFigure,
    Row,
    Verdict,
    data_notes,
    describe_keys,
    final_results,
    make_panel,
    select_datasets,
)
from fedro.paper.verdicts import binomial_p_value
from fedro.planning.tails import all_draws_within
from fedro.simulation.experiment import Experiment, read_experiment

SIZES: tuple[int, ...] = (1, 6, 11, 16, 21, 26, 31, 36, 41, 46, 51, 56)
PAPER_SIZE = 30  # the threshold that the paper sees
FAILURE_SHARE = 0.5  # of the accuracy at the largest n̂; a run with less has failed
SIGNIFICANCE = 0.05
MAX_MIXED_SIZES = 2  # sizes at which only some seeds fail, for a clear threshold
SMOKE_ROUNDS = 40
MIN_SEEDS = 3  # for comparing counts with a probability


def plan_runs(request: FigureRequest) -> FigureRuns:
    """The runs at the requested scale."""
    base, name = read_experiment("femnist-takeover"), "femnist"
    reductions, sizes, seeds = [], SIZES, 5
    if request.scale == "desk":
        base = base.replace(model=SMALL_MODEL, local_steps=5, batch_size=8, evaluate_every=100)
        reductions = [
            "a perceptron with 64 hidden units on normalized images instead of the CNN",
        ]
    if request.scale == "smoke":
        name, sizes, seeds = "digits", (1, 4, 7, 10, 13, 16, 21), 2
        base = smoke(base).replace(byzantine=10)
        reductions = [f"digits, 50 clients of which 10 are Byzantine, {SMOKE_ROUNDS} rounds"]
    points = {
        f"sampled={n}": ({"sampled": n, "tolerated": b}, base.replace(sampled=n, tolerated=b))
        for n in sizes
        for b in [tolerance(n, request.reading)]
    }
    setting = f"n = {base.clients}, b = {base.byzantine}, T = {base.rounds}"
    facts = {"base": select_datasets({name: base}, request)[name], "reading": request.reading}
    panel = make_panel(name, setting, points, request.seeds or seeds, **facts)
    choices = [
        *data_notes([name]),
        "b̂ = ⌊n̂/2⌋ − 1 (0 for n̂ = 1) as in the paper's table"
        if request.reading == "table"
        else "b̂ = ⌈n̂/2⌉ − 1, the largest below half, instead of the text's b̂ = ⌊n̂/2⌋",
        "the Byzantine clients take over when |B_t| > b̂; the paper does not say what happens when "
        "|B_t| = b̂",
        f"not stated in the paper: {describe_keys([panel], 'local_steps', 'batch_size')}",
        f"a run has failed if its accuracy is below {FAILURE_SHARE:.0%} of that at n̂ = {sizes[-1]}",
    ]
    if request.scale == "desk":
        choices.append("T = 500 as in the paper, because the threshold depends on it")
    return FigureRuns([panel], choices, reductions)


def smoke(base: Experiment) -> Experiment:
    """A setting that takes seconds, with the data and model of the demo."""
    changes = {"rounds": SMOKE_ROUNDS, "local_steps": 5, "client_lr": 0.1, "evaluate_every": 10}
    kept = {"attack": base.attack, "rule": base.rule, "l2": base.l2}
    return read_experiment("demo").replace(**changes, **kept)


def tolerance(sampled: int, reading: str) -> int:
    """b̂ as in the paper's table or as in its text."""
    return max(0, sampled // 2 - 1) if reading == "table" else (sampled - 1) // 2


def no_overrun_probability(panel: FigurePanel, sampled: int, allowed: int) -> float:
    """The exact probability that |B_t| ≤ b̂ in all rounds."""
    base: Experiment = panel.facts["base"]
    assert base.clients is not None
    return all_draws_within(allowed, base.clients, base.byzantine, sampled, base.rounds)


def tabulate(runs: FigureRuns, folder: Path) -> list[Row]:
    """The finished runs; `failed` is None where the seed has no run at the largest n̂."""
    (panel,) = runs.panels
    rows = final_results(runs, folder)
    largest = max(settings["sampled"] for settings, _ in panel.runs.values())
    best = {row["seed"]: row["accuracy"] for row in rows if row["sampled"] == largest}
    for row in rows:
        known = row["seed"] in best
        row["safe_probability"] = no_overrun_probability(panel, row["sampled"], row["tolerated"])
        row["failed"] = row["accuracy"] < FAILURE_SHARE * best[row["seed"]] if known else None
    return rows


def judge(runs: FigureRuns, rows: list[Row]) -> list[ClaimResult]:
    """Judge whether there is a threshold, whether it is at 30, and whether chance explains it."""
    rows = [row for row in rows if row["failed"] is not None]
    failed: dict[int, list[bool]] = {}
    for row in sorted(rows, key=lambda row: row["sampled"]):
        failed.setdefault(row["sampled"], []).append(row["failed"])
    expected = {row["sampled"]: 1 - row["safe_probability"] for row in rows}
    several = bool(failed) and min(map(len, failed.values())) >= 2
    results = [_threshold(failed, several), _taken_over(rows), _chance(failed, expected)]
    if runs.panels[0].facts["base"].dataset == "femnist":
        results.insert(1, _at_thirty(failed, expected, several))
    return results


def _threshold(failed: dict[int, list[bool]], several: bool) -> ClaimResult:
    below = list(takewhile(lambda n: all(failed[n]), failed))
    above = list(takewhile(lambda n: not any(failed[n]), reversed(failed)))
    mixed = len(failed) - len(below) - len(above)
    verdict: Verdict = "undecided"
    if below and above and several:
        verdict = "held" if mixed <= MAX_MIXED_SIZES else "not held"
    counts = ", ".join(f"{n}: {sum(runs)}/{len(runs)}" for n, runs in failed.items())
    top, bottom = max(below, default="none"), min(above, default="none")
    return ClaimResult(
        "There is a threshold for n̂: below it training fails, above it training works.",
        verdict,
        f"Failed runs by n̂: {counts}. All runs up to n̂ = {top} failed, none from n̂ = {bottom} on.",
    )


def _at_thirty(
    failed: dict[int, list[bool]], expected: dict[int, float], several: bool
) -> ClaimResult:
    worked = [n for n, runs in failed.items() if n < PAPER_SIZE and not all(runs)]
    broke = [n for n, runs in failed.items() if n > PAPER_SIZE and any(runs)]
    near = ", ".join(f"{expected[n]:.1%} at {n}" for n in failed if abs(n - PAPER_SIZE) < 10)
    below = f"some with n̂ in {worked} worked" if worked else "all failed"
    above = f"some with n̂ in {broke} failed" if broke else "none failed"
    complete = several and set(failed) == set(SIZES)
    return ClaimResult(
        f"FedRo fails with fewer than {PAPER_SIZE} sampled clients and works with more.",
        "not held" if worked or broke else "held" if complete else "undecided",
        f"Of the runs below {PAPER_SIZE}, {below}; of those above, {above}. The exact "
        f"probabilities of failure near {PAPER_SIZE}: {near}.",
    )


def _taken_over(rows: list[Row]) -> ClaimResult:
    odd = [row["run"] for row in rows if row["failed"] != (row["takeovers"] > 0)]
    times = sum(row["takeovers"] > 0 for row in rows)
    return ClaimResult(
        "A run fails if and only if more than b̂ Byzantine clients are sampled in some round.",
        "not held" if odd else "held" if 0 < times < len(rows) else "undecided",
        f"That happened in {times} of {len(rows)} runs. "
        + (f"Exceptions: {', '.join(odd)}." if odd else "These runs failed, and no others."),
    )


def _chance(failed: dict[int, list[bool]], expected: dict[int, float]) -> ClaimResult:
    p_values = {
        n: binomial_p_value(sum(runs), len(runs), expected[n]) for n, runs in failed.items()
    }
    unlikely = [n for n in failed if p_values[n] < SIGNIFICANCE / len(failed)]
    numbers = ", ".join(f"{n}: {expected[n]:.1%}" for n in failed)
    seeds = min(map(len, failed.values()), default=0)
    return ClaimResult(
        "Runs fail as often as the exact probability predicts.",
        "not held" if unlikely else "held" if seeds >= MIN_SEEDS else "undecided",
        f"Exact probability of an overrun in one of T rounds: {numbers}. "
        + (f"Counts too unlikely: {unlikely}." if unlikely else "All counts agree with it."),
    )


def draw(runs: FigureRuns, rows: list[Row]) -> Picture:
    """Accuracy over n̂, and how often it failed beside how often it should."""
    (panel,) = runs.panels
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
        upper.set_title(panel.title, loc="left")
        base: Experiment = panel.facts["base"]
        finest, reading = range(1, sizes[-1] + 1), panel.facts["reading"]
        curve = [1 - no_overrun_probability(panel, n, tolerance(n, reading)) for n in finest]
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
                axes.axvline(PAPER_SIZE, color=RED, ls=":", lw=1)
            upper.annotate(
                "the paper's threshold",
                (PAPER_SIZE, 4),
                xytext=(4, 0),
                textcoords="offset points",
                color=RED,
                fontsize=9,
            )
        figure.tight_layout()
    return figure


FIGURE = PaperFigure(
    "Accuracy over the number of sampled clients", plan_runs, judge, draw, tabulate
)
