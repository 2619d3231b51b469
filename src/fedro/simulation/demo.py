"""The demo: FedRo and plain averaging side by side, under five attacks."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from fedro.runs import read
from fedro.simulation.experiment import Experiment, ExperimentError, parse_changes, read_experiment
from fedro.simulation.recording import run_into
from fedro.simulation.setup import prepare

ATTACKS = {
    "none": "no attack",
    "sign_flip": "sign flipping",
    "foe(tau=4.0)": "fall of empires (τ = 4)",
    "alie": "a little is enough",
    "mimic": "mimic",
    "huge": "huge values",
}
AVERAGE = "mean"


def demo(out: Path, changes: Sequence[str], console: Console, resume: bool = False) -> None:
    """Train each pair, and print the accuracies side by side."""
    base = read_experiment("demo", changes)
    if "attack" in parse_changes(changes):
        raise ExperimentError(
            "the demo has its own attacks: name an experiment, like fedro run demo"
        )
    runs = {
        (attack, rule): base.replace(attack=attack, rule=rule)
        for attack in ATTACKS
        for rule in (base.rule, AVERAGE)
    }
    first = prepare(base)
    console.print(
        f"{first.federation.clients} clients share {base.dataset}; {base.byzantine} of them are "
        f"bad. Each of {base.rounds} rounds samples {first.sampled} and tolerates "
        f"{first.tolerated}.",
        markup=False,
    )
    found: dict[tuple[str, str], float] = {}
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=24), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=len(runs) * base.rounds)
        for (attack, rule), experiment in runs.items():
            bar.update(task, description=f"{ATTACKS[attack]}, {rule}")
            name = f"{attack.partition('(')[0]}-{'mean' if rule == AVERAGE else 'fedro'}"
            found[attack, rule] = train(experiment, out / name, resume, lambda: bar.advance(task))
    console.print(comparison(base.rule, found))
    note = f"Final models, on the honest clients' test data. The runs are in {out}"
    console.print(note, markup=False, highlight=False, soft_wrap=True)


def train(experiment: Experiment, path: Path, resume: bool, advance: Callable[[], None]) -> float:
    """Run into a folder; the accuracy of the final model."""
    resume = resume and (path / "run.json").exists()
    with closing(run_into(path, experiment, resume=resume)) as rounds:
        for _ in rounds:
            advance()
    summary = read(path).summary
    assert summary is not None
    return float(summary["final"]["accuracy"] or 0.0)


def comparison(rule: str, found: Mapping[tuple[str, str], float]) -> Table:
    """The accuracies side by side."""
    table = Table(header_style="bold")
    table.add_column("attack")
    table.add_column(f"FedRo ({rule})", justify="right")
    table.add_column("plain averaging", justify="right")
    for attack, name in ATTACKS.items():
        ours, plain = found[attack, rule], found[attack, AVERAGE]
        table.add_row(name, *(_accuracy(value, max(ours, plain)) for value in (ours, plain)))
    return table


def _accuracy(value: float, best: float) -> str:
    """In color where it is clearly behind."""
    text = f"{100 * value:.1f}%"
    return f"[red]{text}[/]" if value < best - 0.1 else text
