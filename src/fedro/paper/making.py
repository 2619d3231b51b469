"""Make a figure: carry out its runs, and write the picture, the numbers and what they say."""

import datetime
import os
import platform
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

from matplotlib.figure import Figure as Picture

from fedro.common.atomic_files import put
from fedro.common.figures import GREY, save
from fedro.common.text import counted, csv_table, markdown_table
from fedro.common.toml import to_toml
from fedro.paper.study import Ask, Figure, Finding, Study
from fedro.runs import read_summary
from fedro.simulation.engines.workers import cores
from fedro.simulation.experiment import Experiment
from fedro.simulation.sweeps import zipped

Carry = Callable[[Mapping[str, Experiment], Path], object]


def make(name: str, figure: Figure, ask: Ask, out: Path, carry: Carry) -> list[Path]:
    """Run what is not finished (`carry` does), and write everything below `out`."""
    study = figure.study(ask)
    folder = out / folder_name(name, figure, ask)
    file = folder / "-".join([name, *([ask.only] if ask.only else [])])
    for panel in study.panels:
        if panel.runs:
            config = zipped([experiment for _, experiment in panel.runs.values()])
            put(folder / f"{name}-{panel.dataset}.toml", to_toml(config))
    if study.experiments:
        carry(study.experiments, folder / "runs")
    rows = figure.table(study, folder / "runs")
    if not rows:
        raise ValueError(f"no run of {name} has been finished: nothing can be drawn")
    findings = figure.judge(study, rows)
    put(file.with_suffix(".csv"), csv_table(rows))
    save(labelled(figure.draw(study, rows), ask, study), file.with_suffix(".png"))
    text = describe(name, figure, ask, study, findings, folder / "runs", file.name)
    put(file.with_suffix(".md"), text)
    return [file.with_suffix(f".{kind}") for kind in ("png", "csv", "md")]


def folder_name(name: str, figure: Figure, ask: Ask) -> str:
    """A folder for each figure and scale, and for another reading where that changes the runs."""
    usual = figure.study(replace(ask, reading="table")).experiments
    differs = figure.study(ask).experiments != usual
    return "-".join([name, ask.scale, *([ask.reading] if differs else [])])


def labelled(picture: Picture, ask: Ask, study: Study) -> Picture:
    """The picture, saying below in what it is smaller than the paper's."""
    if study.savings:
        text = f"Scale {ask.scale}, smaller than the paper: {'; '.join(study.savings)}."
        width = round(15 * picture.get_figwidth())  # characters
        bottom = picture.get_tightbbox().y0 / picture.get_figheight() - 0.02
        note = "\n".join(textwrap.wrap(text, width))
        picture.text(0.01, bottom, note, va="top", fontsize=8, color=GREY)
    return picture


def describe(
    name: str,
    figure: Figure,
    ask: Ask,
    study: Study,
    findings: list[Finding],
    runs: Path,
    file: str,
) -> str:
    """What was run, where and when, and what it says of the paper's claims."""
    lines = [f"# Figure {name.removeprefix('fig')}: {figure.title}", ""]
    lines += [f"![{figure.title}]({file}.png)", ""]
    command = f"fedro reproduce {name} --scale {ask.scale}"
    command += " --reading text" if ask.reading == "text" else ""
    command += f" --seeds {ask.seeds}" if ask.seeds else ""
    command += f" --only {ask.only}" if ask.only else ""
    lines += [f"Made by `{command}` on {datetime.date.today().isoformat()}.", ""]
    summaries = [read_summary(runs / run) for run in study.experiments]
    if None in summaries:
        finished = sum(summary is not None for summary in summaries)
        lines += [f"**{finished} of {counted(len(summaries), 'run')} are finished.**", ""]
    table = [(finding.claim, f"**{finding.verdict}**", finding.because) for finding in findings]
    lines += [markdown_table(("claim", "verdict", "numbers"), table), ""]
    for title, items in (
        ("Smaller than in the paper", study.savings),
        ("Chosen where the paper is silent or contradicts itself", study.choices),
    ):
        if items:
            lines += [f"{title}:", "", *(f"- {item}" for item in items), ""]
    lines += [f"{sentence}." for sentence in data(study, runs)]
    lines += [f"Machine: {hardware()}.", ""]
    return "\n".join(lines)


def data(study: Study, runs: Path) -> list[str]:
    """The examples that the clients hold, which need not be those of the paper."""
    told = []
    for panel in study.panels:
        held = [read_summary(runs / name) for name in panel.runs]
        sizes = next((summary["examples"] for summary in held if summary), None)
        if sizes:
            told.append(
                f"{panel.name}: {len(sizes)} clients hold {sum(sizes):,} training examples, "
                f"{min(sizes)} to {max(sizes)} each"
            )
    return told


def hardware() -> str:
    """Versions, processor, cores and memory."""
    packages = ", ".join(f"{name} {version(name)}" for name in ("fedro", "torch", "numpy", "numba"))
    processor = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        models = [line for line in info.read_text().splitlines() if line.startswith("model name")]
        processor = models[0].partition(":")[2].strip() if models else processor
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"{packages}, Python {platform.python_version()}; {processor}, "
        f"{counted(cores(), 'core')}, {memory:.0f} GiB"
    )
