"""What a figure is made of: runs, a table of what came out, findings and a picture."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

import matplotlib.figure

from fedro.common.checks import count
from fedro.common.registry import unknown
from fedro.runs import read
from fedro.simulation.experiment import Experiment

SCALES = ("smoke", "desk", "paper")
READINGS = ("table", "text")
Row = dict[str, Any]
Verdict = Literal["held", "not held", "undecided"]


@dataclass(frozen=True)
class Ask:
    """What is wanted of a figure."""

    scale: str = "desk"
    reading: str = "table"  # where the paper's text and tables conflict
    only: str | None = None  # one data set of several
    seeds: int | None = None  # so many, instead of the scale's number

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
class Panel:
    """Runs that are drawn together: the settings that differ, and the experiment of each."""

    dataset: str
    setting: str  # in a few words
    runs: dict[str, tuple[Row, Experiment]]  # by the folder's name: what it varies
    facts: Row = field(default_factory=dict)  # what the figure needs to know besides

    @property
    def name(self) -> str:
        """The data set as people write it."""
        return {"femnist": "FEMNIST", "cifar10": "CIFAR-10"}.get(self.dataset, self.dataset)

    @property
    def title(self) -> str:
        """The data set and the setting."""
        return f"{self.name}: {self.setting}"


@dataclass(frozen=True)
class Study:
    """A figure's panels at a scale, and how they differ from the paper."""

    panels: list[Panel]
    choices: list[str]  # what the paper leaves open or contradicts, and what was taken
    savings: list[str]  # what is smaller than in the paper

    @property
    def experiments(self) -> dict[str, Experiment]:
        """All runs, by name."""
        return {
            name: experiment
            for panel in self.panels
            for name, (_, experiment) in panel.runs.items()
        }


class Finding(NamedTuple):
    """A claim, whether it held, and the numbers."""

    claim: str
    verdict: Verdict
    because: str


@dataclass(frozen=True)
class Figure:
    """One of the paper's figures."""

    title: str
    study: Callable[[Ask], Study]
    judge: Callable[[Study, list[Row]], list[Finding]]
    draw: Callable[[Study, list[Row]], matplotlib.figure.Figure]
    table: Callable[[Study, Path], list[Row]]


def chosen(bases: Mapping[str, Experiment], ask: Ask) -> dict[str, Experiment]:
    """The data sets that are asked for."""
    if ask.only is None:
        return dict(bases)
    if ask.only not in bases:
        raise ValueError(unknown("data set", ask.only, list(bases)))
    return {ask.only: bases[ask.only]}


def stated(panels: Sequence[Panel], *keys: str) -> str:
    """What the panels' runs have in these keys, by data set: "FEMNIST: K = 10, batches of 32"."""
    words = {
        "local_steps": "K = {}",
        "batch_size": "batches of {}",
        "byzantine": "b = {}",
        "tolerated": "b̂ = {}",
    }
    told = []
    for part in panels:
        (values,) = {
            tuple(getattr(experiment, key) for key in keys) for _, experiment in part.runs.values()
        }
        text = ", ".join(words[key].format(value) for key, value in zip(keys, values, strict=True))
        told.append(f"{part.name}: {text}")
    return "; ".join(told)


def panel(
    dataset: str,
    setting: str,
    points: Mapping[str, tuple[Row, Experiment]],
    seeds: int,
    **facts: Any,
) -> Panel:
    """Every point with every seed; the seeds are the outer loop, so that a half is useful."""
    runs = {
        f"{dataset},{name},seed={seed}": ({**row, "seed": seed}, experiment.replace(seed=seed))
        for seed in range(seeds)
        for name, (row, experiment) in points.items()
    }
    return Panel(dataset, setting, runs, facts)


def results(study: Study, folder: Path) -> list[Row]:
    """A line for each run that is finished: its settings, and what came of it."""
    rows = []
    for part in study.panels:
        for name, (settings, experiment) in part.runs.items():
            if not (folder / name / "summary.json").exists():
                continue
            found = read(folder / name)
            assert found.summary is not None
            final = found.summary["final"]
            rows.append(
                {
                    "dataset": part.dataset,
                    **settings,
                    "rounds": experiment.rounds,
                    "accuracy": final["accuracy"],
                    "mean_client": final["clients"],
                    "worst_tenth": final["worst"],
                    "loss": final["loss"],
                    "rounds_with_too_many_bad": found.summary["overrun"],
                    "takeovers": found.summary["takeovers"],
                    "seconds": round(found.summary["seconds"], 1),
                    "run": name,
                }
            )
    return rows
