"""Figure 3: accuracy over the rounds under four attacks; beyond it, with the exact b̂ as well."""

from pathlib import Path
from statistics import fmean

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Picture

from fedro.common.figures import STYLE
from fedro.paper.evidence import all_above, averaged, matches, paired, sign
from fedro.paper.fig2 import smoke
from fedro.paper.shared import ATTACKS, CHOICE, LOOKS, data_taken, shortened, told
from fedro.paper.study import (
    Ask,
    Figure,
    Finding,
    Panel,
    Row,
    Study,
    chosen,
    panel,
    stated,
)
from fedro.planning import plan
from fedro.runs import read
from fedro.simulation.experiment import Experiment, read_experiment

MARGIN = 0.05  # what an attack may cost and still be called harmless
PLANS = {"paper": "the paper's b̂", "exact": "the exact b̂"}


def study(ask: Ask) -> Study:
    """The runs at a scale."""
    femnist, cifar, seeds = read_experiment("femnist"), read_experiment("cifar10"), 3
    savings = {}
    if ask.scale == "desk":
        femnist = shortened(femnist, 40).replace(batch_size=16, evaluate_every=4)
        cifar = shortened(cifar, 100).replace(batch_size=16, evaluate_every=10)
        cifar = cifar.replace(model="small_cnn(channels=8)")
        savings = {
            "femnist": "FEMNIST: 40 rounds instead of 500 (steps of γ_c in proportion)",
            "cifar10": "CIFAR-10: 100 rounds instead of 1500, a network of one convolution (8 "
            "channels) instead of four, and only the images that the files hold",
        }
    bases = {"femnist": femnist, "cifar10": cifar}
    if ask.scale == "smoke":
        bases, seeds = {"digits": smoke(femnist).replace(byzantine=5, sampled=15, tolerated=7)}, 2
        savings = {"digits": "digits, 50 clients of whom 5 are bad, 40 rounds"}
    bases = chosen(bases, ask)
    panels = [_panel(name, base, ask.seeds or seeds) for name, base in bases.items()]
    choices = [
        *data_taken(bases),
        CHOICE,
        f"not stated in the paper: {stated(panels, 'batch_size')}",
        "b̂ as in the paper's text, which eq. (6) as printed does not give; and the exact one",
        f"an attack is called harmless if it costs less than {100 * MARGIN:.0f} points",
    ]
    return Study(panels, choices, [savings[name] for name in bases if name in savings])


def _panel(name: str, base: Experiment, seeds: int) -> Panel:
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
    return panel(name, setting, points, seeds, paper=base.tolerated, exact=exact.tolerated)


def _planned_rounds(name: str, base: Experiment) -> int:
    """T of the plan: the paper's, whatever is saved."""
    return {"femnist": 500, "cifar10": 1500}.get(name, base.rounds)


def table(study: Study, folder: Path) -> list[Row]:
    """A line for each evaluation of each finished run."""
    rows = []
    for part in study.panels:
        for name, (settings, _) in part.runs.items():
            if not (folder / name / "summary.json").exists():
                continue
            lines = read(folder / name).rounds
            for line in lines:
                if "score" in line:
                    score = line["score"]
                    rows.append(
                        {
                            "dataset": part.dataset,
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


def judge(study: Study, rows: list[Row]) -> list[Finding]:
    """Do the attacks cost little, and does the exact plan do better?"""
    last = [row for row in rows if row["last"]]
    findings = []
    for part in study.panels:
        here = [row for row in last if row["dataset"] == part.dataset]
        if here:
            findings += [_harmless(part, here, kind) for kind in PLANS]
            findings.append(_better(part, here))
    return findings


def _harmless(part: Panel, rows: list[Row], kind: str) -> Finding:
    """Accuracy under each attack against that without, by seed."""
    none = {"plan": kind, "attack": "none"}
    costs = {attack: paired(rows, none, {**none, "attack": attack}) for attack in ATTACKS}
    del costs["none"]
    return Finding(
        f"{part.name}, b̂ = {part.facts[kind]} ({PLANS[kind]}): no attack costs "
        f"{100 * MARGIN:.0f} points of accuracy.",
        all_above(costs.values(), -MARGIN),
        f"Against no attack: {told(costs)}.",
    )


def _better(part: Panel, rows: list[Row]) -> Finding:
    """The exact b̂ against the paper's, each seed's mean over the attacks."""
    gains = {
        attack: paired(
            rows, {"plan": "paper", "attack": attack}, {"plan": "exact", "attack": attack}
        )
        for attack in ATTACKS
    }
    whole = averaged(gains.values())
    return Finding(
        f"{part.name}: the exact b̂ = {part.facts['exact']} does better than the paper's "
        f"{part.facts['paper']} (beyond the paper).",
        sign(whole),
        f"In the mean over attacks {whole or 'no pairs'}; {told(gains)}.",
    )


def draw(study: Study, rows: list[Row]) -> Picture:
    """A row of panels for each data set: the paper's b̂, and the exact one."""
    parts = [p for p in study.panels if any(row["dataset"] == p.dataset for row in rows)]
    with plt.rc_context(STYLE):
        figure, grid = plt.subplots(
            len(parts), 2, figsize=(9.6, 3.7 * len(parts)), sharey="row", squeeze=False
        )
        for part, pair in zip(parts, grid, strict=True):
            for kind, axes in zip(PLANS, pair, strict=True):
                _curves(
                    axes, [r for r in rows if matches(r, {"dataset": part.dataset, "plan": kind})]
                )
                axes.set_title(f"b̂ = {part.facts[kind]}, {PLANS[kind]}", loc="left")
                axes.set_xlabel("round")
            pair[0].set_ylabel(f"{part.title}\naccuracy (%)")
        handles, labels = grid[0][0].get_legend_handles_labels()
        figure.legend(
            handles, labels, loc="lower center", bbox_to_anchor=(0.5, 0.0), ncols=len(labels)
        )
        figure.tight_layout(rect=(0, 0.03 + 0.03 / len(parts), 1, 1))
    return figure


def _curves(axes: Axes, rows: list[Row]) -> None:
    """Mean over the seeds, with the band from the least to the most."""
    for attack, label in ATTACKS.items():
        found: dict[int, list[float]] = {}
        for row in rows:
            if row["attack"] == attack:
                found.setdefault(row["round"], []).append(100 * row["accuracy"])
        color, mark = LOOKS[attack]
        at = sorted(found)
        mean = [fmean(found[round]) for round in at]
        axes.plot(at, mean, color=color, marker=mark, ms=4, lw=1.4, label=label)
        low, high = ([pick(found[round]) for round in at] for pick in (min, max))
        axes.fill_between(at, low, high, color=color, alpha=0.12, lw=0)


FIGURE = Figure("Accuracy under four attacks", study, judge, draw, table)
