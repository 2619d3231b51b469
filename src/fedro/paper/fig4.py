"""Figure 4: accuracy over the number of local steps K, under four attacks that go on unchanged."""

from statistics import fmean

import matplotlib.pyplot as plt
from matplotlib.figure import Figure as Picture

from fedro.common.figures import STYLE
from fedro.paper.evidence import all_above, paired
from fedro.paper.fig2 import smoke
from fedro.paper.shared import ATTACKS, CHOICE, LOOKS, SMALL, data_taken, shortened, told
from fedro.paper.study import (
    Ask,
    Figure,
    Finding,
    Panel,
    Row,
    Study,
    chosen,
    panel,
    results,
    stated,
)
from fedro.simulation.experiment import Experiment, read_experiment

STEPS: tuple[int, ...] = (5, 10, 15, 20, 25, 30, 35)
READ = {
    "table": "b of the paper's table (its text has 15 for CIFAR-10), and the largest b̂ below half, "
    "which the table does not state",
    "text": "as in the paper's text, which keeps Figure 3's b̂ and has b = 15 for CIFAR-10; its "
    "table has 30 for both",
}
STRONG = 2  # attacks of the four that are called the stronger ones


def study(ask: Ask) -> Study:
    """The runs at a scale."""
    femnist, cifar = read_experiment("femnist-steps"), read_experiment("cifar10-steps")
    steps, seeds, savings = STEPS, 3, []
    if ask.reading == "text":
        femnist, cifar = femnist.replace(tolerated=11), cifar.replace(byzantine=15, tolerated=13)
    if ask.scale == "desk":
        steps = (5, 15, 35)
        femnist, cifar = (
            shortened(base, 200).replace(model=SMALL, batch_size=8, evaluate_every=50)
            for base in (femnist, cifar)
        )
        savings = [
            "a perceptron with 64 hidden units on normalized images for the CNNs",
            "200 rounds instead of 500 (FEMNIST) and 1500 (CIFAR-10)",
            "K = 5, 15 and 35",
        ]
    bases = {"femnist": femnist, "cifar10": cifar}
    if ask.scale == "smoke":
        steps, seeds = (1, 5, 10), 2
        small = smoke(femnist).replace(byzantine=10, client_lr="1/K", rounds=25)
        bases = {"digits": small.replace(sampled=15, tolerated=7)}
        savings = ["digits, 50 clients of whom 10 are bad, 25 rounds"]
    panels = [
        _panel(name, base, steps, ask.seeds or seeds) for name, base in chosen(bases, ask).items()
    ]
    choices = [
        *data_taken(bases),
        CHOICE,
        f"{stated(panels, 'byzantine', 'tolerated')}: {READ[ask.reading]}",
        f"not stated in the paper: {stated(panels, 'batch_size')}, and which K between 5 and 35",
        "where |B_t| > b̂ the attack goes on unchanged",
        f"the stronger attacks are the {STRONG} that leave the least accuracy over all K",
    ]
    return Study(panels, choices, savings)


def _panel(name: str, base: Experiment, steps: tuple[int, ...], seeds: int) -> Panel:
    points: dict[str, tuple[Row, Experiment]] = {
        f"attack={attack},K={k}": (
            {"attack": attack, "local_steps": k},
            base.replace(attack=attack, local_steps=k),
        )
        for k in steps
        for attack in ATTACKS
    }
    setting = (
        f"n = {base.clients}, b = {base.byzantine}, n̂ = {base.sampled}, "
        f"b̂ = {base.tolerated}, T = {base.rounds}"
    )
    return panel(name, setting, points, seeds)


def judge(study: Study, rows: list[Row]) -> list[Finding]:
    """Does accuracy under the stronger attacks grow with K?"""
    findings = []
    for part in study.panels:
        here = [row for row in rows if row["dataset"] == part.dataset]
        if here:
            findings.append(_grows(part, here))
    return findings


def _grows(part: Panel, rows: list[Row]) -> Finding:
    few, many = min(row["local_steps"] for row in rows), max(row["local_steps"] for row in rows)
    left = {
        attack: fmean(found)
        for attack in ATTACKS
        if (found := [row["accuracy"] for row in rows if row["attack"] == attack])
    }
    strong = sorted(left.keys() - {"none"}, key=lambda attack: left[attack])[:STRONG]
    gains = {
        attack: paired(
            rows, {"attack": attack, "local_steps": few}, {"attack": attack, "local_steps": many}
        )
        for attack in left
    }
    return Finding(
        f"{part.name}: more local steps help against each of the stronger attacks "
        f"({', '.join(ATTACKS[attack] for attack in strong)}).",
        all_above([gains[attack] for attack in strong]),
        f"From K = {few} to {many}: {told(gains)}.",
    )


def draw(study: Study, rows: list[Row]) -> Picture:
    """A panel for each data set, a line for each attack."""
    parts = [p for p in study.panels if any(row["dataset"] == p.dataset for row in rows)]
    with plt.rc_context(STYLE):
        figure, grid = plt.subplots(
            1, len(parts), figsize=(1.2 + 5.4 * len(parts), 4.4), squeeze=False
        )
        for part, axes in zip(parts, grid[0], strict=True):
            here = [row for row in rows if row["dataset"] == part.dataset]
            steps = sorted({row["local_steps"] for row in here})
            for place, (attack, label) in enumerate(ATTACKS.items()):
                color, mark = LOOKS[attack]
                found = [
                    [
                        100 * row["accuracy"]
                        for row in here
                        if row["attack"] == attack and row["local_steps"] == k
                    ]
                    for k in steps
                ]
                if not all(found):
                    continue
                mean = [fmean(values) for values in found]
                spread = (
                    [m - min(values) for m, values in zip(mean, found, strict=True)],
                    [max(values) - m for m, values in zip(mean, found, strict=True)],
                )
                shift = (place - 2) * 0.008 * (steps[-1] - steps[0])  # so that bars do not overlap
                axes.errorbar(
                    [k + shift for k in steps],
                    mean,
                    yerr=spread,
                    color=color,
                    marker=mark,
                    ms=5,
                    lw=1.4,
                    elinewidth=0.8,
                    label=label,
                )
            axes.set_xticks(steps)
            axes.set_xlabel("local steps K")
            axes.set_title(part.title, loc="left", fontsize=9)
        grid[0][0].set_ylabel("accuracy of the final model (%)")
        handles, labels = grid[0][0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="lower center", bbox_to_anchor=(0.5, 0.0), ncols=3)
        figure.tight_layout(rect=(0, 0.11, 1, 1))
    return figure


FIGURE = Figure("Accuracy over the number of local steps", study, judge, draw, results)
