"""Reproduces a figure: runs its experiments, then writes the picture, the numbers and verdicts."""

import datetime
import os
import platform
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

from matplotlib.figure import Figure as Picture

from fedro.common.atomic_files import write_atomically
from fedro.common.figures import save
from fedro.common.palette import GREY
from fedro.common.text import counted, csv_table, markdown_table, to_toml
from fedro.paper.figure import ClaimResult, FigureRequest, FigureRuns, PaperFigure
from fedro.runs import read_summary
from fedro.simulation.engines.workers import available_cores
from fedro.simulation.experiment import Experiment
from fedro.simulation.sweeps import to_sweep_values

RunAll = Callable[[Mapping[str, Experiment], Path], object]


def reproduce_figure(
    name: str, figure: PaperFigure, request: FigureRequest, out: Path, run_all: RunAll
) -> list[Path]:
    """Run what is not finished, and write the figure below `out`.

    Args:
        name: The figure's name, such as ``"fig2"``.
        figure: The figure.
        request: Scale, reading, data set and number of seeds.
        out: The folder below which everything is written.
        run_all: Runs the given experiments into a folder, each in a subfolder with its name.
            It skips finished runs, as `fedro.sweep` does.

    Returns:
        The picture (PNG), the numbers (CSV) and the page with the verdicts (Markdown).

    Raises:
        ValueError: If no run has finished.
    """
    runs = figure.plan_runs(request)
    folder = out / folder_name(name, figure, request)
    file = folder / "-".join([name, *([request.only] if request.only else [])])
    for panel in runs.panels:
        if panel.runs:
            config = to_sweep_values([experiment for _, experiment in panel.runs.values()])
            write_atomically(folder / f"{name}-{panel.dataset}.toml", to_toml(config))
    if runs.experiments:
        run_all(runs.experiments, folder / "runs")
    rows = figure.tabulate(runs, folder / "runs")
    if not rows:
        raise ValueError(f"no run of {name} has finished, so there is nothing to draw")
    results = figure.judge(runs, rows)
    write_atomically(file.with_suffix(".csv"), csv_table(rows))
    picture = add_reductions(figure.draw(runs, rows), request, runs)
    save(picture, file.with_suffix(".png"))
    page = result_page(name, figure, request, runs, results, folder / "runs", file.name)
    write_atomically(file.with_suffix(".md"), page)
    return [file.with_suffix(f".{kind}") for kind in ("png", "csv", "md")]


def folder_name(name: str, figure: PaperFigure, request: FigureRequest) -> str:
    """The folder of a figure at a scale; the other reading has its own if it changes the runs."""
    usual = figure.plan_runs(replace(request, reading="table")).experiments
    differs = figure.plan_runs(request).experiments != usual
    return "-".join([name, request.scale, *([request.reading] if differs else [])])


def add_reductions(picture: Picture, request: FigureRequest, runs: FigureRuns) -> Picture:
    """Write below the picture how its runs are smaller than the paper's."""
    if runs.reductions:
        text = f"Scale {request.scale}, smaller than the paper: {'; '.join(runs.reductions)}."
        width = round(15 * picture.get_figwidth())  # characters
        bottom = picture.get_tightbbox().y0 / picture.get_figheight() - 0.02
        note = "\n".join(textwrap.wrap(text, width))
        picture.text(0.01, bottom, note, va="top", fontsize=8, color=GREY)
    return picture


def result_page(
    name: str,
    figure: PaperFigure,
    request: FigureRequest,
    runs: FigureRuns,
    results: list[ClaimResult],
    folder: Path,
    file: str,
) -> str:
    """The Markdown page: the command, the verdicts, the choices, the data and the machine."""
    lines = [f"# Figure {name.removeprefix('fig')}: {figure.title}", ""]
    lines += [f"![{figure.title}]({file}.png)", ""]
    command = f"fedro reproduce {name} --scale {request.scale}"
    command += " --reading text" if request.reading == "text" else ""
    command += f" --seeds {request.seeds}" if request.seeds else ""
    command += f" --only {request.only}" if request.only else ""
    lines += [f"Made with `{command}` on {datetime.date.today().isoformat()}.", ""]
    summaries = [read_summary(folder / run) for run in runs.experiments]
    if None in summaries:
        finished = sum(summary is not None for summary in summaries)
        lines += [f"**{finished} of {counted(len(summaries), 'run')} are finished.**", ""]
    table = [(result.claim, f"**{result.verdict}**", result.numbers) for result in results]
    lines += [markdown_table(("claim", "verdict", "numbers"), table), ""]
    for title, items in (
        ("Smaller than in the paper", runs.reductions),
        ("Choices where the paper says nothing or contradicts itself", runs.choices),
    ):
        if items:
            lines += [f"{title}:", "", *(f"- {item}" for item in items), ""]
    lines += [f"{sentence}." for sentence in data_sizes(runs, folder)]
    lines += [f"Machine: {versions_and_hardware()}.", ""]
    return "\n".join(lines)


def data_sizes(runs: FigureRuns, folder: Path) -> list[str]:
    """How many examples the clients hold, which may differ from the paper."""
    sentences = []
    for panel in runs.panels:
        summaries = [read_summary(folder / name) for name in panel.runs]
        sizes = next((summary["examples"] for summary in summaries if summary), None)
        if sizes:
            sentences.append(
                f"{panel.name}: {len(sizes)} clients hold {sum(sizes):,} training examples, "
                f"{min(sizes)} to {max(sizes)} each"
            )
    return sentences


def versions_and_hardware() -> str:
    """Versions, processor, cores and memory of this machine."""
    packages = ", ".join(f"{name} {version(name)}" for name in ("fedro", "torch", "numpy", "numba"))
    processor = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        models = [line for line in info.read_text().splitlines() if line.startswith("model name")]
        processor = models[0].partition(":")[2].strip() if models else processor
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"{packages}, Python {platform.python_version()}; {processor}, "
        f"{counted(available_cores(), 'core')}, {memory:.0f} GiB"
    )
