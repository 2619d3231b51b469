"""The parts of a reproduced figure, and what the figures share."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

import matplotlib.figure

from fedro.common import palette
from fedro.common.checks import count
from fedro.common.registry import unknown
from fedro.runs import read
from fedro.simulation.experiment import Experiment

SCALES = ("smoke", "desk", "paper")
READINGS = ("table", "text")
Row = dict[str, Any]
Verdict = Literal["held", "not held", "undecided"]

ATTACKS = {
    "none": "no attack",
    "sign_flip": "sign flipping",
    "foe": "fall of empires",
    "alie": "a little is enough",
    "mimic": "mimic",
}
LINE_STYLES = {  # color and marker of each attack
    "none": (palette.BLACK, "o"),
    "sign_flip": (palette.VERMILION, "s"),
    "foe": (palette.DEEP_BLUE, "^"),
    "alie": (palette.GREEN, "D"),
    "mimic": (palette.PINK, "v"),
}
ATTACK_DEFAULTS = (
    "attacks with the defaults of `fedro attacks` (foe with τ = 2, alie's z from the quantile, "
    "mimic's target from its warm-up), because the paper does not state their strengths"
)
SMALL_MODEL = "mlp(hidden=64, normalize=True)"  # a model for two cores


@dataclass(frozen=True)
class FigureRequest:
    """How a figure is to be reproduced."""

    scale: str = "desk"
    reading: str = "table"  # what to follow where the paper's tables and text conflict
    only: str | None = None  # one of the figure's data sets
    seeds: int | None = None  # None: the scale's own number

    def __post_init__(self) -> None:
        for kind, value, known in (
            ("scale", self.scale, SCALES),
            ("reading", self.reading, READINGS),
        ):
            if value not in known:
                raise ValueError(unknown(kind, value, list(known)))
        if self.seeds is not None:
            count("seeds", self.seeds, 1)


@dataclass(frozen=True)
class FigurePanel:
    """The runs that a figure shows in one panel."""

    dataset: str
    setting: str  # the sizes in short, for the title
    runs: dict[str, tuple[Row, Experiment]]  # by run name: the varied settings, the experiment
    facts: Row = field(default_factory=dict)  # further values that the figure needs

    @property
    def name(self) -> str:
        """The data set's name as usually written."""
        return {"femnist": "FEMNIST", "cifar10": "CIFAR-10"}.get(self.dataset, self.dataset)

    @property
    def title(self) -> str:
        """The data set and the setting."""
        return f"{self.name}: {self.setting}"


@dataclass(frozen=True)
class FigureRuns:
    """All runs of a figure at a scale, and how they differ from the paper."""

    panels: list[FigurePanel]
    choices: list[str]  # what was chosen where the paper leaves something open
    reductions: list[str]  # what is smaller than in the paper

    @property
    def experiments(self) -> dict[str, Experiment]:
        """All experiments, by run name."""
        return {
            name: experiment
            for panel in self.panels
            for name, (_, experiment) in panel.runs.items()
        }


class ClaimResult(NamedTuple):
    """A claim of the paper, whether it held here, and the numbers behind the verdict."""

    claim: str
    verdict: Verdict
    numbers: str


@dataclass(frozen=True)
class PaperFigure:
    """One of the paper's figures, as functions that reproduce it."""

    title: str
    plan_runs: Callable[[FigureRequest], FigureRuns]
    judge: Callable[[FigureRuns, list[Row]], list[ClaimResult]]
    draw: Callable[[FigureRuns, list[Row]], matplotlib.figure.Figure]
    tabulate: Callable[[FigureRuns, Path], list[Row]]  # reads the finished runs in a folder


def select_datasets(
    bases: Mapping[str, Experiment], request: FigureRequest
) -> dict[str, Experiment]:
    """The requested data sets."""
    if request.only is None:
        return dict(bases)
    if request.only not in bases:
        raise ValueError(unknown("data set", request.only, list(bases)))
    return {request.only: bases[request.only]}


def describe_keys(panels: Sequence[FigurePanel], *keys: str) -> str:
    """The values of these keys in each panel: "FEMNIST: K = 10, batches of 32"."""
    formats = {
        "local_steps": "K = {}",
        "batch_size": "batches of {}",
        "byzantine": "b = {}",
        "tolerated": "b̂ = {}",
    }
    texts = []
    for panel in panels:
        (values,) = {
            tuple(getattr(experiment, key) for key in keys) for _, experiment in panel.runs.values()
        }
        text = ", ".join(
            formats[key].format(value) for key, value in zip(keys, values, strict=True)
        )
        texts.append(f"{panel.name}: {text}")
    return "; ".join(texts)


def make_panel(
    dataset: str,
    setting: str,
    points: Mapping[str, tuple[Row, Experiment]],
    seeds: int,
    **facts: Any,
) -> FigurePanel:
    """A panel with every point for every seed.

    Seeds are the outer loop, so that an interrupted reproduction has complete seeds.
    """
    runs = {
        f"{dataset},{name},seed={seed}": ({**row, "seed": seed}, experiment.replace(seed=seed))
        for seed in range(seeds)
        for name, (row, experiment) in points.items()
    }
    return FigurePanel(dataset, setting, runs, facts)


def final_results(runs: FigureRuns, folder: Path) -> list[Row]:
    """A row for each finished run: its settings and its final scores."""
    rows = []
    for panel in runs.panels:
        for name, (settings, experiment) in panel.runs.items():
            if not (folder / name / "summary.json").exists():
                continue
            recorded = read(folder / name)
            assert recorded.summary is not None
            final = recorded.summary["final"]
            rows.append(
                {
                    "dataset": panel.dataset,
                    **settings,
                    "rounds": experiment.rounds,
                    "accuracy": final["accuracy"],
                    "mean_client": final["clients"],
                    "worst_tenth": final["worst"],
                    "loss": final["loss"],
                    "overruns": recorded.summary["overrun"],
                    "takeovers": recorded.summary["takeovers"],
                    "seconds": round(recorded.summary["seconds"], 1),
                    "run": name,
                }
            )
    return rows


def data_notes(datasets: Collection[str]) -> list[str]:
    """A note that FEMNIST's writers may differ from the paper's."""
    if "femnist" not in datasets:
        return []
    return ["the first 150 writers in the data files; the paper uses those of LEAF's 5% sample"]


def shorten(base: Experiment, rounds: int) -> Experiment:
    """Fewer rounds, with the changes of the learning rate moved in proportion."""
    rate = base.client_lr
    if isinstance(rate, list):
        rate = [(math.floor(start * rounds / base.rounds), value) for start, value in rate]
    return base.replace(rounds=rounds, client_lr=rate)
