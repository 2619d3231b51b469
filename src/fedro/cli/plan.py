"""``fedro plan``: how many clients to sample, how many bad ones to tolerate."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedro.cli.common import app, explains_errors, parse_share, parse_share_of

if TYPE_CHECKING:
    from fedro.planning import Plan


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
    html: Annotated[
        Path | None, typer.Option(help="Write a page to play with the plan into this file (.html).")
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
        rule=_rule(rule),
        max_kappa=max_kappa,
        max_fraction=None if max_fraction is None else parse_share("max_fraction", max_fraction),
        dropout=parse_share("dropout", dropout),
        available=available,
        retries=retries,
    )
    if plot is not None:
        from fedro.common.figures import save
        from fedro.planning.figure import plan_figure

        save(plan_figure(chosen), plot)
    if html is not None:
        from fedro.planning import page as plan_page

        plan_page.save(chosen, html)
    if as_json:
        print(json.dumps(chosen.as_dict(), indent=2, ensure_ascii=False))
    else:
        show_plan(chosen)
        if plot is not None:
            print(f"Drawn to {plot}")
        if html is not None:
            print(f"Written to {html}; open it in a browser")


def _rule(text: str) -> Any:
    """A rule of your own, my_module:name, must be imported; of the others the name is enough."""
    if ":" not in text:
        return text
    from fedro.rules import parse_rule

    sys.path.insert(0, "")  # your own rules are found from where you are
    return parse_rule(text)


def show_plan(plan: "Plan") -> None:
    """The plan as a newcomer reads it: the answer, the reasons, the alternatives."""
    from rich.console import Console
    from rich.panel import Panel

    from fedro.common.text import counted, percent

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

    from fedro.common.text import percent

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
    from fedro.common.text import counted, percent

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
