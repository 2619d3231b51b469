"""Figure 3: accuracy over the rounds under four attacks, with the paper's and the exact b̂."""

from pathlib import Path
from statistics import fmean

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Picture

from fedro.common.figures import STYLE
from fedro.paper.fig2 import SMOKE_ROUNDS, smoke
from fedro.paper.figure import (
    ATTACK_DEFAULTS,
    ATTACKS,
    LINE_STYLES,
    ClaimResult,
    FigurePanel,
    FigureRequest,
    FigureRuns,
    PaperFigure,
    Row,
    data_notes,
    describe_keys,
    make_panel,
    select_datasets,
    shorten,
)
from fedro.paper.verdicts import (
    format_differences,
    matches,
    mean_difference,
    paired_differences,
    verdict_above_zero,
    verdict_all_above,
)
from fedro.planning import plan
from fedro.runs import read
from fedro.simulation.experiment import Experiment, read_experiment

HARMLESS_COST = 0.05  # an attack that costs less accuracy is called harmless
PLANS = {"paper": "the paper's b̂", "exact": "the exact b̂"}


def plan_runs(request: FigureRequest) -> FigureRuns:
    """The runs at the requested scale."""
    femnist, cifar, seeds = read_experiment("femnist"), read_experiment("cifar10"), 3
    reductions = {}
    if request.scale == "desk":
        femnist = shorten(femnist, 40).replace(batch_size=16, evaluate_every=4)
        cifar = shorten(cifar, 100).replace(batch_size=16, evaluate_every=10)
        cifar = cifar.replace(model="small_cnn(channels=8)")
        reductions = {
            "femnist": "FEMNIST: 40 rounds instead of 500 (changes of γ_c moved in proportion)",
            "cifar10": "CIFAR-10: 100 rounds instead of 1500, a network with one convolution (8 "
            "channels) instead of four, and only the images in the data files",
        }
    bases = {"femnist": femnist, "cifar10": cifar}
    if request.scale == "smoke":
        bases, seeds = {"digits": smoke(femnist).replace(byzantine=5, sampled=15, tolerated=7)}, 2
        reductions = {
            "digits": f"digits, 50 clients of which 5 are Byzantine, {SMOKE_ROUNDS} rounds"
        }
    bases = select_datasets(bases, request)
    panels = [_panel(name, base, request.seeds or seeds) for name, base in bases.items()]
    choices = [
        *data_notes(bases),
        ATTACK_DEFAULTS,
        f"not stated in the paper: {describe_keys(panels, 'batch_size')}",
        "b̂ as in the paper's text (eq. (6) as printed gives another value), and the exact b̂",
        f"an attack is called harmless if it costs less than {100 * HARMLESS_COST:.0f} points",
    ]
    return FigureRuns(panels, choices, [reductions[name] for name in bases if name in reductions])


def _panel(name: str, base: Experiment, seeds: int) -> FigurePanel:
    assert base.clients is not None
    exact = plan(
        clients=base.clients,
        byzantine=base.byzantine,
        rounds=_planned_rounds(name, base),
        sampled=base.sampled,
    )
    points: dict[str, tuple[Row, Experiment]] = {}
    for kind, b in (("paper", base.tolerated), ("exact", exact.tolerated)):
        for attack in ATTACKS:
            row = {"plan": kind, "tolerated": b, "attack": attack}
            experiment = base.replace(tolerated=b, attack=attack)
            points[f"attack={attack},tolerated={b}"] = (row, experiment)
    setting = f"n = {base.clients}, b = {base.byzantine}, n̂ = {base.sampled}"
    return make_panel(name, setting, points, seeds, paper=base.tolerated, exact=exact.tolerated)


def _planned_rounds(name: str, base: Experiment) -> int:
    """T of the plan: the paper's, even if fewer rounds are run."""
    return {"femnist": 500, "cifar10": 1500}.get(name, base.rounds)


def tabulate(runs: FigureRuns, folder: Path) -> list[Row]:
    """A row for each evaluation of each finished run."""
    rows = []
    for panel in runs.panels:
        for name, (settings, _) in panel.runs.items():
            if not (folder / name / "summary.json").exists():
                continue
            lines = read(folder / name).rounds
            for line in lines:
                if "score" in line:
                    score = line["score"]
                    rows.append(
                        {
                            "dataset": panel.dataset,
                            **settings,
                            "round": line["round"] + 1,
                            "last": line is lines[-1],
                            "accuracy": score["accuracy"],
                            "mean_client": score["clients"],
                            "worst_tenth": score["worst"],
                            "loss": score["loss"],
                            "run": name,
                        }
                    )
    return rows


def judge(runs: FigureRuns, rows: list[Row]) -> list[ClaimResult]:
    """Judge whether the attacks cost little, and whether the exact plan does better."""
    last = [row for row in rows if row["last"]]
    results = []
    for panel in runs.panels:
        here = [row for row in last if row["dataset"] == panel.dataset]
        if here:
            results += [_harmless(panel, here, kind) for kind in PLANS]
            results.append(_better(panel, here))
    return results


def _harmless(panel: FigurePanel, rows: list[Row], kind: str) -> ClaimResult:
    """Compare the accuracy under each attack with that without, seed by seed."""
    none = {"plan": kind, "attack": "none"}
    costs = {
        attack: paired_differences(rows, none, {**none, "attack": attack}) for attack in ATTACKS
    }
    del costs["none"]
    return ClaimResult(
        f"{panel.name}, b̂ = {panel.facts[kind]} ({PLANS[kind]}): no attack costs "
        f"{100 * HARMLESS_COST:.0f} points of accuracy.",
        verdict_all_above(costs.values(), -HARMLESS_COST),
        f"Compared with no attack: {format_differences(costs)}.",
    )


def _better(panel: FigurePanel, rows: list[Row]) -> ClaimResult:
    """Compare the exact b̂ with the paper's, by each seed's mean over the attacks."""
    gains = {
        attack: paired_differences(
            rows, {"plan": "paper", "attack": attack}, {"plan": "exact", "attack": attack}
        )
        for attack in ATTACKS
    }
    overall = mean_difference(gains.values())
    return ClaimResult(
        f"{panel.name}: the exact b̂ = {panel.facts['exact']} does better than the paper's "
        f"{panel.facts['paper']} (beyond the paper).",
        verdict_above_zero(overall),
        f"Mean over attacks: {overall or 'no pairs'}; {format_differences(gains)}.",
    )


def draw(runs: FigureRuns, rows: list[Row]) -> Picture:
    """Two panels for each data set: the paper's b̂ and the exact one."""
    panels = [p for p in runs.panels if any(row["dataset"] == p.dataset for row in rows)]
    with plt.rc_context(STYLE):
        figure, grid = plt.subplots(
            len(panels), 2, figsize=(9.6, 3.7 * len(panels)), sharey="row", squeeze=False
        )
        for panel, pair in zip(panels, grid, strict=True):
            for kind, axes in zip(PLANS, pair, strict=True):
                _curves(
                    axes, [r for r in rows if matches(r, {"dataset": panel.dataset, "plan": kind})]
                )
                axes.set_title(f"b̂ = {panel.facts[kind]}, {PLANS[kind]}", loc="left")
                axes.set_xlabel("round")
            pair[0].set_ylabel(f"{panel.title}\naccuracy (%)")
        handles, labels = grid[0][0].get_legend_handles_labels()
        figure.legend(
            handles, labels, loc="lower center", bbox_to_anchor=(0.5, 0.0), ncols=len(labels)
        )
        figure.tight_layout(rect=(0, 0.03 + 0.03 / len(panels), 1, 1))
    return figure


def _curves(axes: Axes, rows: list[Row]) -> None:
    """Mean over the seeds, with a band from the smallest to the largest."""
    for attack, label in ATTACKS.items():
        accuracies: dict[int, list[float]] = {}
        for row in rows:
            if row["attack"] == attack:
                accuracies.setdefault(row["round"], []).append(100 * row["accuracy"])
        color, marker = LINE_STYLES[attack]
        rounds = sorted(accuracies)
        mean = [fmean(accuracies[number]) for number in rounds]
        axes.plot(rounds, mean, color=color, marker=marker, ms=4, lw=1.4, label=label)
        low, high = ([pick(accuracies[number]) for number in rounds] for pick in (min, max))
        axes.fill_between(rounds, low, high, color=color, alpha=0.12, lw=0)


FIGURE = PaperFigure("Accuracy under four attacks", plan_runs, judge, draw, tabulate)
