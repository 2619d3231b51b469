"""``fedro plan``: choose how many clients to sample and how many Byzantine ones to tolerate."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedro.cli.common import (
    AsJson,
    app,
    explains_errors,
    import_from_current_folder,
    parse_share,
    parse_share_of,
)

if TYPE_CHECKING:
    from fedro.planning import Plan


@app.command("plan")
@explains_errors
def plan_command(
    clients: Annotated[int, typer.Option(help="Number of clients (n).")],
    byzantine: Annotated[
        str,
        typer.Option(
            help="Number of Byzantine clients to expect (b), or a share of all clients like 10%."
        ),
    ],
    rounds: Annotated[int, typer.Option(help="Number of training rounds (T).")],
    confidence: Annotated[
        str,
        typer.Option(
            help="Probability that the whole run is free of overruns, like 0.99 or 99%. An overrun "
            "is a round that samples more Byzantine clients than tolerated."
        ),
    ] = "0.99",
    sampled: Annotated[
        int | None,
        typer.Option(help="Number of clients to sample in a round (n̂). Default: recommended."),
    ] = None,
    bound: Annotated[
        str,
        typer.Option(
            help="How to compute the probability: exact, or the paper's bound in its shifted or "
            "literal reading."
        ),
    ] = "exact",
    rule: Annotated[
        str, typer.Option(help="The rule whose κ is reported, such as 'nnm | trimmed_mean'.")
    ] = "trimmed_mean",
    max_kappa: Annotated[
        float | None, typer.Option(help="Recommend the smallest n̂ whose κ is at most this.")
    ] = None,
    max_fraction: Annotated[
        str | None, typer.Option(help="Recommend the smallest n̂ whose b̂/n̂ is at most this.")
    ] = None,
    dropout: Annotated[
        str,
        typer.Option(help="Probability that an invited client does not reply, like 0.05 or 5%."),
    ] = "0",
    available: Annotated[
        int | None,
        typer.Option(
            help="The smallest number of clients that may be online; in the worst case all "
            "Byzantine ones are. Default: all clients."
        ),
    ] = None,
    retries: Annotated[
        int, typer.Option(help="Number of extra draws to allow for, in case rounds are void.")
    ] = 0,
    as_json: AsJson = False,
    plot: Annotated[
        Path | None,
        typer.Option(help="Draw κ and b̂/n̂ over n̂ into this file (.png, .svg or .pdf)."),
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option(help="Write an interactive page about the plan to this file (.html)."),
    ] = None,
) -> None:
    """Choose how many clients to sample, and how many Byzantine ones to tolerate."""
    from fedro.planning import plan

    chosen = plan(
        clients=clients,
        byzantine=parse_share_of("byzantine", byzantine, clients),
        rounds=rounds,
        confidence=parse_share("confidence", confidence),
        sampled=sampled,
        bound=bound,
        rule=_load_rule(rule),
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
            print(f"Figure written to {plot}")
        if html is not None:
            print(f"Page written to {html}; open it in a browser")


def _load_rule(text: str) -> Any:
    """Import a rule of the user's own, my_module:name; a built-in rule's name is enough."""
    if ":" not in text:
        return text
    from fedro.rules import parse_rule

    import_from_current_folder()
    return parse_rule(text)


def show_plan(plan: "Plan") -> None:
    """Print a plan: the answer, the alternatives, the reasons."""
    from rich.console import Console
    from rich.panel import Panel

    from fedro.common.text import counted, percent

    rounds = "The round is" if plan.rounds == 1 else f"All {plan.rounds} rounds are"
    answer = (
        f"Sample [bold]{plan.sampled}[/] of {counted(plan.clients, 'client')} each round, and "
        f"tolerate [bold]{counted(plan.tolerated, 'Byzantine one')}[/].\n"
        f"{rounds} free of overruns with probability "
        f"[bold]{percent(plan.confidence_achieved)}[/] (wanted: {percent(plan.confidence)})."
    )
    console = Console()
    console.print(Panel(answer, title="Plan", title_align="left", expand=False))
    console.print(_alternatives(plan))
    console.print(
        "κ: the largest squared error that Byzantine clients can cause, in units of the honest "
        "updates' variance. Messages: models and updates sent in a round.",
        style="dim",
    )
    for reason in plan.why:
        console.print(f"• {reason}", highlight=False)
    for line in _if_more_byzantine(plan):
        console.print(f"• {line}", highlight=False)


def _alternatives(plan: "Plan") -> Any:
    """A table of the plan and its alternatives."""
    from rich.table import Table

    from fedro.common.text import percent

    table = Table(title=None, header_style="bold")
    for name, justify in (
        ("", "left"),
        ("sample", "right"),
        ("tolerate", "right"),
        ("error κ", "right"),
        ("no overrun", "right"),
        ("messages", "right"),
    ):
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
    for sampled, name in named_sizes(plan).items():
        alternative = plan.at(sampled)
        if alternative is None:
            continue
        tolerated, kappa = alternative
        problem = plan.problem
        chance = problem.achieved(sampled, tolerated)
        row = (name, sampled, tolerated, f"{kappa:.4g}", percent(chance), _messages(plan, sampled))
        table.add_row(*map(str, row), style="bold" if sampled == plan.sampled else None)
    return table


def named_sizes(plan: "Plan") -> dict[int, str]:
    """The sample sizes to compare, smallest first, with their names."""
    sizes = {
        plan.n_min: "smallest possible",
        plan.n_th: "paper's n̂_th",
        plan.n_opt: "paper's n̂_opt",
        plan.problem.population: "all clients",
        plan.sampled: "this plan",
    }
    return dict(sorted((n, name) for n, name in sizes.items() if n is not None))


def _messages(plan: "Plan", sampled: int) -> str:
    """One model and one update for each sampled client, and the share of sampling all clients."""
    share = sampled / plan.problem.population
    return f"{2 * sampled} ({share:.3g}×)" if share < 1 else f"{2 * sampled}"


def _if_more_byzantine(plan: "Plan") -> list[str]:
    """What happens to the guarantee if there are half as many Byzantine clients again."""
    from fedro.common.text import percent

    more = min(max(plan.byzantine + 1, -(-3 * plan.byzantine // 2)), plan.problem.population)
    if more == plan.byzantine:
        return []
    outlook = plan.if_more(more)
    remedy = "with this sample size, no tolerance would be enough"
    if outlook.tolerated is not None and outlook.tolerated <= plan.tolerated:
        remedy = "the plan still holds"
    elif outlook.tolerated is not None:
        remedy = f"tolerate {outlook.tolerated} to be safe"
    return [
        f"If there are {more} Byzantine clients instead of {plan.byzantine}, the run is free of "
        f"overruns with probability {percent(outlook.confidence)} (on average "
        f"{outlook.overrun_rounds:.3g} of {plan.problem.draws} draws are overruns): {remedy}."
    ]
