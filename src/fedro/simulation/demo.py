"""The demo: FedRo, FedRo that leaves suspects out, and plain averaging, under five attacks."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from fedro.runs import read
from fedro.simulation.experiment import Experiment, ExperimentError, parse_changes, read_experiment
from fedro.simulation.preparation import prepare
from fedro.simulation.recording import run_into
from fedro.simulation.terminal import print_warning

DEMO_ATTACKS = {
    "none": "no attack",
    "sign_flip": "sign flipping",
    "foe(tau=4.0)": "fall of empires (τ = 4)",
    "alie": "a little is enough",
    "mimic": "mimic",
    "huge": "huge values",
}
VARIANTS: dict[str, dict[str, Any]] = {  # the columns of the table, with what they change
    "FedRo": {},
    "FedRo with evidence": {"exclude": "evidence"},
    "plain averaging": {"rule": "mean", "exclude": "none"},
}
FOLDERS = dict(zip(VARIANTS, ("fedro", "evidence", "mean"), strict=True))
CLEARLY_WORSE = 0.1  # a gap in accuracy that is shown in red


def run_demo(out: Path, changes: Sequence[str], console: Console, resume: bool = False) -> None:
    """Train in all three ways under every attack, and print the accuracies side by side."""
    base = read_experiment("demo", changes)
    for key, value in (("attack", "alie"), ("exclude", "evidence")):
        if key in parse_changes(changes):
            raise ExperimentError(
                f"the demo chooses {key} itself: to choose it, name the experiment, as in "
                f"`fedro run demo --set {key}={value}`"
            )
    runs = {
        (attack, variant): base.replace(attack=attack, **keys)
        for attack in DEMO_ATTACKS
        for variant, keys in VARIANTS.items()
    }
    setup = prepare(base)
    console.print(
        f"{setup.federation.clients} clients share {base.dataset}; {base.byzantine} of them are "
        f"Byzantine. Each of {base.rounds} rounds samples {setup.sampled} clients and tolerates "
        f"{setup.tolerated} Byzantine ones among them.",
        markup=False,
    )
    for warning in setup.warnings:
        console.print(warning, style="bold yellow", markup=False)
    summaries: dict[tuple[str, str], dict[str, Any]] = {}
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=24), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=len(runs) * base.rounds)
        for (attack, variant), experiment in runs.items():
            bar.update(task, description=f"{DEMO_ATTACKS[attack]}, {variant}")
            name = f"{attack.partition('(')[0]}-{FOLDERS[variant]}"
            summaries[attack, variant] = train(
                experiment, out / name, resume, lambda: bar.advance(task)
            )
    accuracies = {key: float(each["final"]["accuracy"] or 0.0) for key, each in summaries.items()}
    console.print(comparison_table(accuracies))
    for (attack, variant), summary in summaries.items():
        if (problem := summary.get("problem")) is not None:
            text = f"{variant} under {DEMO_ATTACKS[attack]}: {problem}"
            if console.quiet:
                print_warning(text)
            console.print(Text(text, style="yellow"), soft_wrap=True)
    note = (
        "Accuracy of the final models on the honest clients' test data. FedRo aggregates with "
        f"{base.rule}; with evidence, it also leaves out clients that it suspects. "
        f"The runs are in {out}"
    )
    console.print(note, markup=False, highlight=False, soft_wrap=True)


def train(
    experiment: Experiment, path: Path, resume: bool, advance: Callable[[], None]
) -> dict[str, Any]:
    """Run into a folder and return the summary of the run."""
    resume = resume and (path / "run.json").exists()
    with closing(run_into(path, experiment, resume=resume)) as rounds:
        for _ in rounds:
            advance()
    summary = read(path).summary
    assert summary is not None
    return summary


def comparison_table(accuracies: Mapping[tuple[str, str], float]) -> Table:
    """The accuracies of all variants side by side."""
    table = Table(header_style="bold")
    table.add_column("attack")
    for variant in VARIANTS:
        table.add_column(variant, justify="right")
    for attack, name in DEMO_ATTACKS.items():
        values = [accuracies[attack, variant] for variant in VARIANTS]
        table.add_row(name, *(_colored(value, max(values)) for value in values))
    return table


def _colored(value: float, best: float) -> str:
    """An accuracy in percent, red if it is clearly worse than the best."""
    text = f"{100 * value:.1f}%"
    return f"[red]{text}[/]" if value < best - CLEARLY_WORSE else text
