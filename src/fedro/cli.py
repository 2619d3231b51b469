"""The command line: ``fedro plan | rules | kappa | reproduce``.

Heavy things are imported inside the commands, so that ``fedro --help`` is instant.
"""

import contextlib
import functools
import json
import math
import sys
from collections.abc import Callable, Iterator
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ParamSpec, TypeVar

import typer

if TYPE_CHECKING:
    from fedro.planning import Plan

P = ParamSpec("P")
R = TypeVar("R")

app = typer.Typer(
    name="fedro",
    help="Byzantine-robust federated learning: plan, simulate under attack, deploy.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


def main() -> None:
    """The console script."""
    app()


def explains_errors(command: Callable[P, R]) -> Callable[P, R]:
    """Turn bad input into one message and exit code 2, never a traceback."""

    @functools.wraps(command)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return command(*args, **kwargs)
        except (ValueError, OSError, OverflowError) as error:
            print(f"fedro: {error}", file=sys.stderr)
            raise typer.Exit(2) from None

    return wrapped


@app.callback(invoke_without_command=True)
def root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False,
) -> None:
    """Byzantine-robust federated learning: plan, simulate under attack, deploy."""
    if version:
        from fedro import __version__

        print(__version__)
        raise typer.Exit


@app.command("plan")
@explains_errors
def plan_command(
    clients: Annotated[int, typer.Option(help="All clients (n).")],
    byzantine: Annotated[
        str, typer.Option(help="Bad clients to reckon with (b): a number, or a share like 10%.")
    ],
    rounds: Annotated[int, typer.Option(help="Training rounds (T).")],
    confidence: Annotated[
        str, typer.Option(help="Wanted probability that every round is safe: 0.99 or 99%.")
    ] = "0.99",
    sampled: Annotated[
        int | None, typer.Option(help="Clients sampled a round (n̂). Left out: recommended.")
    ] = None,
    bound: Annotated[str, typer.Option(help="exact, shifted or literal.")] = "exact",
    rule: Annotated[
        str, typer.Option(help="The rule whose κ counts, like 'nnm | trimmed_mean'.")
    ] = "trimmed_mean",
    max_kappa: Annotated[
        float | None, typer.Option(help="Recommend the smallest n̂ with at most this κ.")
    ] = None,
    max_fraction: Annotated[
        str | None, typer.Option(help="Recommend the smallest n̂ with at most this b̂/n̂ instead.")
    ] = None,
    dropout: Annotated[
        str, typer.Option(help="Share of invited clients that do not answer: 0.05 or 5%.")
    ] = "0",
    available: Annotated[
        int | None, typer.Option(help="The fewest clients ever online, all bad ones among them.")
    ] = None,
    retries: Annotated[int, typer.Option(help="Extra draws that void rounds may cost.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    plot: Annotated[
        Path | None, typer.Option(help="Draw κ and b̂/n̂ over n̂ into this file (.png, .svg, .pdf).")
    ] = None,
) -> None:
    """How many clients to sample each round, and how many bad ones to tolerate."""
    from fedro.planning import plan

    chosen = plan(
        clients=clients,
        byzantine=parse_share_of("byzantine", byzantine, clients),
        rounds=rounds,
        confidence=parse_share("confidence", confidence),
        sampled=sampled,
        bound=bound,
        rule=rule,
        max_kappa=max_kappa,
        max_fraction=None if max_fraction is None else parse_share("max_fraction", max_fraction),
        dropout=parse_share("dropout", dropout),
        available=available,
        retries=retries,
    )
    if plot is not None:
        from fedro.figures import plan_figure, save

        save(plan_figure(chosen), plot)
    if as_json:
        print(json.dumps(chosen.as_dict(), indent=2, ensure_ascii=False))
    else:
        show_plan(chosen)
        if plot is not None:
            print(f"Drawn to {plot}")


def parse_share(name: str, text: str) -> float:
    """0.05 from '0.05' or '5%'."""
    return float(_share(name, text))


def _share(name: str, text: str) -> Decimal:
    number = text.strip()
    try:
        value = Decimal(number.removesuffix("%"))
    except InvalidOperation:
        value = Decimal("nan")
    if not value.is_finite() or value.adjusted() > 20:
        raise ValueError(f"{name}={text!r}: write a number like 0.05, or a share like 5%")
    return value / 100 if number.endswith("%") else value


def parse_share_of(name: str, text: str, total: int) -> int:
    """15 from '15', or from '10%' of 150; a broken share is rounded up, to be on the safe side."""
    number = text.strip()
    if number.endswith("%"):
        return math.ceil(_share(name, number) * total)
    try:
        return int(number)
    except ValueError:
        raise ValueError(
            f"{name}={text!r}: write a whole number, or a share of the clients like 10%"
        ) from None


def show_plan(plan: "Plan") -> None:
    """The plan as a newcomer reads it: the answer, the reasons, the alternatives."""
    from rich.console import Console
    from rich.panel import Panel

    from fedro.wording import counted, percent

    answer = (
        f"Sample [bold]{plan.sampled}[/] of {counted(plan.clients, 'client')} each round, and "
        f"tolerate [bold]{counted(plan.tolerated, 'bad one')}[/] among them.\n"
        f"The whole run of {counted(plan.rounds, 'round')} is safe with probability "
        f"[bold]{percent(plan.confidence_achieved)}[/] (wanted {percent(plan.confidence)})."
    )
    console = Console()
    console.print(Panel(answer, title="Plan", title_align="left", expand=False))
    console.print(_alternatives(plan))
    console.print(
        "κ: the error bad clients can cause, in units of the honest clients' own variance. "
        "Messages: a model down and an update up, each round.",
        style="dim",
    )
    for reason in plan.why:
        console.print(f"• {reason}", highlight=False)
    for line in _if_wrong(plan):
        console.print(f"• {line}", highlight=False)


def _alternatives(plan: "Plan") -> Any:
    """What each noteworthy sample size would mean."""
    from rich.table import Table

    from fedro.wording import percent

    table = Table(title=None, header_style="bold")
    for name, justify in (
        ("", "left"),
        ("sample", "right"),
        ("tolerate", "right"),
        ("error κ", "right"),
        ("safe run", "right"),
        ("messages", "right"),
    ):
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
    for sampled, name in noteworthy(plan).items():
        found = plan.at(sampled)
        if found is None:
            continue
        tolerated, kappa = found
        setting = plan.setting
        chance = setting.achieved(sampled, tolerated)
        row = (name, sampled, tolerated, f"{kappa:.4g}", percent(chance), _messages(plan, sampled))
        table.add_row(*map(str, row), style="bold" if sampled == plan.sampled else None)
    return table


def noteworthy(plan: "Plan") -> dict[int, str]:
    """Sample sizes worth a line, smallest first: {n̂: what it is}."""
    sizes = {
        plan.n_min: "least that works",
        plan.n_th: "paper's n̂_th",
        plan.n_opt: "paper's n̂_opt",
        plan.setting.population: "everyone",
        plan.sampled: "this plan",
    }
    return dict(sorted((n, name) for n, name in sizes.items() if n is not None))


def _messages(plan: "Plan", sampled: int) -> str:
    """A model down and an update up for each sampled client."""
    share = sampled / plan.setting.population
    return f"{2 * sampled} ({share:.3g}×)" if share < 1 else f"{2 * sampled}"


def _if_wrong(plan: "Plan") -> list[str]:
    """What becomes of the guarantee if there are half as many bad clients again."""
    from fedro.wording import counted, percent

    more = min(max(plan.byzantine + 1, -(-3 * plan.byzantine // 2)), plan.setting.population)
    if more == plan.byzantine:
        return []
    outlook = plan.if_more(more)
    remedy = "no tolerance would be enough with this sample size"
    if outlook.tolerated is not None and outlook.tolerated <= plan.tolerated:
        remedy = "the plan still holds"
    elif outlook.tolerated is not None:
        remedy = f"{outlook.tolerated} would have to be tolerated"
    return [
        f"With {counted(more, 'bad client')} instead of {plan.byzantine}, the run is safe with "
        f"probability {percent(outlook.confidence)} ({outlook.overrun_rounds:.3g} of "
        f"{plan.setting.draws} draws would hold more bad clients than tolerated): {remedy}."
    ]


@app.command()
@explains_errors
def reproduce(
    figure: Annotated[str, typer.Argument(help="Which figure of the paper: fig1.")],
    out: Annotated[Path, typer.Option(help="Folder for the picture and the numbers.")] = Path(
        "out"
    ),
) -> None:
    """Draw a figure of the paper again, and what goes beyond it: PNG and CSV."""
    from fedro.figures import FIGURES

    for path in FIGURES[figure](out):
        print(path)


@app.command()
@explains_errors
def rules(
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print the table as Markdown, for documents.")
    ] = False,
) -> None:
    """All rules and mixers: what they do, when they may be used, what is proved."""
    from fedro.rules.listing import as_markdown, as_text

    if markdown:
        print(as_markdown())
    else:
        from rich.console import Console

        Console().print(as_text())


@app.command()
@explains_errors
def kappa(
    rule: Annotated[str, typer.Argument(help="A rule like 'nnm | trimmed_mean'.")],
    sampled: Annotated[int, typer.Option(help="Rows (n̂).")],
    tolerated: Annotated[int, typer.Option(help="Bad rows to tolerate (b̂).")],
    seconds: Annotated[float, typer.Option(help="Time for the adversarial search.")] = 10.0,
    seed: Annotated[int, typer.Option(help="Seed of the search.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """The proved κ of a rule, the least any rule can have, and the largest an adversary finds."""
    from fedro.coefficients import lower_bound
    from fedro.kappa_search import search_kappa
    from fedro.rules import parse_rule

    parsed = parse_rule(rule, b=tolerated)
    proved = parsed.kappa(sampled)
    with _search_progress(seconds, hidden=as_json) as progress:
        found = search_kappa(
            parsed, sampled, tolerated, seconds=seconds, seed=seed, progress=progress
        )
    result = {
        "rule": str(parsed),
        "sampled": sampled,
        "tolerated": tolerated,
        "proved": None if proved is None else float(proved),
        "source": None if proved is None else proved.source,
        "lower_bound": lower_bound(sampled, tolerated),
        "found": found.kappa if math.isfinite(found.kappa) else None,
        "unbounded": not math.isfinite(found.kappa),
        "evaluations": found.evaluations,
    }
    if as_json:
        print(json.dumps(result, ensure_ascii=False))
        return
    print(f"{parsed} with {sampled} rows, {tolerated} of them bad")
    if proved is None:
        print("  proved κ        none known")
    else:
        print(f"  proved κ        {proved:.4g}   {proved.source}")
    print(f"  least possible  {result['lower_bound']:.4g}   b/(n−2b), for any rule")
    print(f"  largest found   {found.kappa:.4g}   in {found.evaluations} tries")
    if proved is not None and found.kappa > proved * (1 + 1e-4):
        print("  The search broke the bound: the proof or the program is wrong.")


@contextlib.contextmanager
def _search_progress(
    seconds: float, hidden: bool
) -> Iterator[Callable[[float, float], None] | None]:
    """A bar over the time of a search, with the best κ so far."""
    if hidden:
        yield None
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("searching"), BarColumn(), TimeRemainingColumn())
    bar = Progress(*columns, TextColumn("κ ≥ {task.fields[best]:.4g}"), transient=True)
    with bar:
        task = bar.add_task("", total=seconds, best=0.0)
        yield lambda used, best: bar.update(task, completed=used * seconds, best=best)
