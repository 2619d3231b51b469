"""Figure 2: below which n̂ does training fail, where bad clients who are too many take over?"""

from pathlib import Path
from statistics import fmean

import matplotlib.pyplot as plt
from matplotlib.figure import Figure as Picture

from fedro.experiment import Experiment, read_experiment
from fedro.figures import BLUE, GREY, RED, STYLE
from fedro.paper.evidence import chance_of
from fedro.paper.shared import SMALL
from fedro.paper.study import Ask, Figure, Finding, Panel, Row, Study, chosen, panel, results
from fedro.tails import all_draws_within

SIZES: tuple[int, ...] = (1, 6, 11, 16, 21, 26, 31, 36, 41, 46, 51, 56)
THRESHOLD = 30  # where the paper sees it
FAILED = 0.5  # a run failed if it has less than this part of the accuracy at the largest n̂
RARE = 0.05


def study(ask: Ask) -> Study:
    """The runs at a scale."""
    base, savings, sizes, seeds, name = read_experiment("femnist-takeover"), [], SIZES, 5, "femnist"
    if ask.scale == "desk":
        base = base.replace(model=SMALL, local_steps=5, batch_size=8, evaluate_every=100)
        savings = [
            "a perceptron with 64 hidden units on normalized images for the CNN",
            "T = 500 as in the paper: the threshold depends on it",
        ]
    if ask.scale == "smoke":
        name, sizes, seeds = "digits", (1, 4, 7, 10, 13, 16, 21), 2
        base = smoke(base).replace(byzantine=10)
        savings = ["digits, 50 clients of whom 10 are bad, 40 rounds"]
    points = {
        f"sampled={n}": ({"sampled": n, "tolerated": b}, base.replace(sampled=n, tolerated=b))
        for n in sizes
        for b in [tolerated(n, ask.reading)]
    }
    choices = [
        "b̂ = ⌊n̂/2⌋ − 1 (0 for n̂ = 1) as in the paper's table"
        if ask.reading == "table"
        else "b̂ = ⌈n̂/2⌉ − 1, the largest below half, for the text's b̂ = ⌊n̂/2⌋",
        "the bad clients take over when |B_t| > b̂; the paper does not say what happens at = b̂",
        f"K = {base.local_steps} and batches of {base.batch_size}: the paper states neither",
        f"a run has failed if its accuracy is below {FAILED:.0%} of that at n̂ = {sizes[-1]}",
    ]
    setting = f"n = {base.clients}, b = {base.byzantine}, T = {base.rounds}"
    facts = {"base": chosen({name: base}, ask)[name], "reading": ask.reading}
    return Study([panel(name, setting, points, ask.seeds or seeds, **facts)], choices, savings)


def smoke(base: Experiment) -> Experiment:
    """A figure's setting in seconds: the demo's data and model."""
    small = {"rounds": 40, "local_steps": 5, "client_lr": 0.1, "evaluate_every": 10}
    kept = {"attack": base.attack, "rule": base.rule, "l2": base.l2}
    return read_experiment("demo").replace(**small, **kept)


def tolerated(sampled: int, reading: str) -> int:
    """b̂, as the table has it or as the text does."""
    return max(0, sampled // 2 - 1) if reading == "table" else (sampled - 1) // 2


def safe(part: Panel, sampled: int, allowed: int) -> float:
    """The exact probability that |B_t| ≤ b̂ in all rounds."""
    base: Experiment = part.facts["base"]
    assert base.clients is not None
    return all_draws_within(allowed, base.clients, base.byzantine, sampled, base.rounds)


def table(study: Study, folder: Path) -> list[Row]:
    """The runs, with whether each failed and how likely that is."""
    (part,) = study.panels
    rows = results(study, folder)
    largest = max((row["sampled"] for row in rows), default=0)
    best = {row["seed"]: row["accuracy"] for row in rows if row["sampled"] == largest}
    for row in rows:
        row["safe_probability"] = safe(part, row["sampled"], row["tolerated"])
        row["failed"] = row["accuracy"] < FAILED * best.get(row["seed"], 0.0)
    return rows


def judge(study: Study, rows: list[Row]) -> list[Finding]:
    """Is there a threshold, is it at 30, and does chance explain it?"""
    sizes = sorted({row["sampled"] for row in rows})
    failed = {n: [row["failed"] for row in rows if row["sampled"] == n] for n in sizes}
    counts = ", ".join(f"{n}: {sum(failed[n])}/{len(failed[n])}" for n in sizes)
    always = [n for n in sizes if all(failed[n])]
    never = [n for n in sizes if not any(any(failed[m]) for m in sizes if m >= n)]
    expected = {
        n: 1 - next(r["safe_probability"] for r in rows if r["sampled"] == n) for n in sizes
    }
    odd = {n: chance_of(sum(failed[n]), len(failed[n]), expected[n]) for n in sizes}
    unlikely = [n for n in sizes if odd[n] < RARE / len(sizes)]
    told = ", ".join(f"{n}: {expected[n]:.1%}" for n in sizes)
    findings = [
        Finding(
            "There is an n̂ below which training fails and from which on it does not.",
            "held" if always and never and max(always) < min(never) else "not held",
            f"Failed runs by n̂: {counts}. All failed up to n̂ = {max(always, default='none')}, none "
            f"from {min(never, default='none')} on.",
        ),
        Finding(
            "It fails as often as bad clients outnumber b̂ by chance.",
            "not held" if unlikely else "held",
            f"Exact probability of that in T rounds: {told}. "
            + (f"Too unlikely: {unlikely}." if unlikely else "No count is out of the ordinary."),
        ),
    ]
    if study.panels[0].facts["base"].dataset == "femnist":
        findings.insert(1, _at_thirty(sizes, failed, expected))
    return findings


def _at_thirty(
    sizes: list[int], failed: dict[int, list[bool]], expected: dict[int, float]
) -> Finding:
    below, above = [n for n in sizes if n < THRESHOLD], [n for n in sizes if n > THRESHOLD]
    worked = [n for n in below if not all(failed[n])]
    broke = [n for n in above if any(failed[n])]
    because = (
        f"Below it, some runs at n̂ = {worked} did not fail" if worked else "Below it all failed"
    )
    because += f"; above it, some at {broke} did" if broke else "; above it none did"
    nearest = [n for n in sizes if abs(n - THRESHOLD) < 10]
    because += ". The exact probabilities of failure near it: " + ", ".join(
        f"{expected[n]:.1%} at {n}" for n in nearest
    )
    return Finding(
        f"FedRo fails when fewer than {THRESHOLD} clients are sampled, and not when more are.",
        "not held" if worked or broke else "held",
        because + ".",
    )


def draw(study: Study, rows: list[Row]) -> Picture:
    """Accuracy over n̂, and how often it failed beside how often it should."""
    (part,) = study.panels
    sizes = sorted({row["sampled"] for row in rows})
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
        curve = [1 - safe(part, n, tolerated(n, reading)) for n in finest]
        lower.plot(list(finest), [100 * value for value in curve], color=GREY, lw=1, zorder=1)
        expected = [100 * curve[n - 1] for n in sizes]
        lower.plot(sizes, expected, "s", mfc="none", color=GREY, label="exact probability")
        share = [fmean(row["failed"] for row in rows if row["sampled"] == n) for n in sizes]
        lower.plot(
            sizes, [100 * value for value in share], "o", color=RED, label="runs that failed"
        )
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


FIGURE = Figure("Accuracy over the number of sampled clients", study, judge, draw, table)
