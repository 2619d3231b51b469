"""``fedro plan``: choose how many clients to sample and how many Byzantine ones to tolerate."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedro.cli.common import (
    AsJson,
    app,
    count_or_share,
    explains_errors,
    import_from_current_folder,
)
from fedro.common.shares import parse_share
from fedro.common.text import counted, percent
from fedro.rules import DEFAULT_RULE

if TYPE_CHECKING:
    from fedro.planning import Outlook, Plan, Scenario

PAGE_SHARE = 0.1  # of Byzantine clients, near which the page starts if no number is given


@app.command("plan")
@explains_errors
def plan_command(
    clients: Annotated[int, typer.Option(help="Number of clients (n).")],
    rounds: Annotated[int, typer.Option(help="Number of training rounds (T).")],
    byzantine: Annotated[
        str | None,
        typer.Option(
            help="Number of Byzantine clients to expect (b), or a share of all clients like 10%. "
            "Default: compare plans for 0% to 30%."
        ),
    ] = None,
    confidence: Annotated[
        str,
        typer.Option(
            help="Probability that the whole run is free of overruns, like 0.99 or 99%. An overrun "
            "is a round that samples more Byzantine clients than tolerated."
        ),
    ] = "0.99",
    sampled: Annotated[
        str | None,
        typer.Option(
            help="Number of clients to sample in a round (n̂), or a share of them. Default: "
            "recommended."
        ),
    ] = None,
    bound: Annotated[
        str,
        typer.Option(
            help="How to compute the probability: exact, or the paper's bound in its shifted or "
            "literal reading."
        ),
    ] = "exact",
    rule: Annotated[
        str,
        typer.Option(help="The rule that will run; its proved κ is reported."),
    ] = DEFAULT_RULE,
    max_kappa: Annotated[
        float | None,
        typer.Option(help="Recommend the smallest n̂ with which the rule's κ is at most this."),
    ] = None,
    max_fraction: Annotated[
        str | None, typer.Option(help="Recommend the smallest n̂ whose b̂/n̂ is at most this.")
    ] = None,
    dropout: Annotated[
        str,
        typer.Option(help="Probability that an invited client does not reply, like 0.05 or 5%."),
    ] = "0",
    available: Annotated[
        str | None,
        typer.Option(
            help="The smallest number of clients that may be online, or a share of them; in the "
            "worst case all Byzantine ones are. Default: all clients."
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
    from fedro.planning import plan, scenarios

    options: dict[str, Any] = {
        "clients": clients,
        "rounds": rounds,
        "confidence": parse_share("confidence", confidence),
        "sampled": None if sampled is None else count_or_share("sampled", sampled),
        "bound": bound,
        "rule": _load_rule(rule),
        "max_kappa": max_kappa,
        "max_fraction": None if max_fraction is None else parse_share("max_fraction", max_fraction),
        "dropout": parse_share("dropout", dropout),
        "available": None if available is None else count_or_share("available", available),
        "retries": retries,
    }
    if byzantine is None:
        compared = scenarios(**options)
        as_dict: dict[str, Any] = {"scenarios": [scenario.as_dict() for scenario in compared]}
        shown = _plan_for_page(compared) if html is not None else None
    else:
        shown = plan(byzantine=count_or_share("byzantine", byzantine), **options)
        compared, as_dict = [], shown.as_dict()
    written = _write(shown, compared, plot, html)
    if as_json:
        print(json.dumps(as_dict, indent=2, ensure_ascii=False))
        return
    if byzantine is None:
        show_scenarios(compared, clients, rounds)
    else:
        assert shown is not None
        show_plan(shown)
    for line in written:
        print(line)


def _plan_for_page(compared: "list[Scenario]") -> "Plan":
    """The plan with which the page starts if no number of Byzantine clients is given."""
    plans = [scenario.plan for scenario in compared if scenario.plan is not None]
    if not plans:
        raise ValueError("there is no plan to show: no number of Byzantine clients can be met")
    return min(plans, key=lambda plan: abs(plan.byzantine / plan.clients - PAGE_SHARE))


def _write(
    chosen: "Plan | None", compared: "list[Scenario]", plot: Path | None, html: Path | None
) -> list[str]:
    """Write the figure and the page that are asked for, and say where."""
    lines = []
    if plot is not None:
        from fedro.common.figures import save
        from fedro.planning.figure import plan_figure, scenarios_figure

        if compared:
            save(scenarios_figure(compared), plot)
        else:
            assert chosen is not None
            save(plan_figure(chosen), plot)
        lines.append(f"Figure written to {plot}")
    if html is not None:
        from fedro.planning import page as plan_page

        assert chosen is not None
        plan_page.save(chosen, html)
        lines.append(f"Page written to {html}; open it in a browser")
    return lines


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

    rounds = "The round is" if plan.rounds == 1 else f"All {plan.rounds} rounds are"
    everyone = " (everyone)" if plan.sampled == plan.clients else ""
    answer = (
        f"Sample [bold]{plan.sampled}[/] of {counted(plan.clients, 'client')}{everyone} each "
        f"round, and tolerate [bold]{counted(plan.tolerated, 'Byzantine one')}[/].\n"
        f"{rounds} {_what_is_safe(plan)} with probability "
        f"[bold]{percent(plan.confidence_achieved)}[/] (wanted: {percent(plan.confidence)})."
    )
    console = Console()
    console.print(Panel(answer, title="Plan", title_align="left", expand=False))
    console.print(_alternatives(plan))
    console.print(_legend(plan.rule), style="dim", markup=False)
    console.print(
        f"Safe run: the probability that it is {_what_is_safe(plan)}. An overrun is a round with "
        "more Byzantine clients than tolerated. Messages: models and updates sent in a round.",
        style="dim",
        highlight=False,
    )
    for reason in plan.why:
        console.print(f"• {reason}", highlight=False, markup=False)
    if plan.byzantine < plan.problem.population:
        console.print(f"• {_if_more(plan, plan.if_half_more)}", highlight=False)


def _what_is_safe(plan: "Plan") -> str:
    """What the probabilities of a plan are about."""
    if not plan.dropout:
        return "free of overruns"
    voids = f"more than {counted(plan.retries, 'void draw')}" if plan.retries else "void draws"
    return f"free of overruns and of {voids}"


def _legend(rule: str | None) -> str:
    """What the columns of the tables mean."""
    return (
        "κ: the largest squared error that Byzantine clients can cause, in units of the honest "
        f"updates' variance. Proved: for {rule or 'a rule, if the plan had one'}. Best: no rule "
        "can have less, r = b̂/(n̂−2b̂)."
    )


def _table(*columns: str) -> Any:
    from rich.table import Table

    table = Table(header_style="bold")
    for number, name in enumerate(columns):
        table.add_column(name, justify="right" if number else "left")
    return table


def _kappa(value: float | None) -> str:
    return "not proved" if value is None else f"{value:.4g}"


def _alternatives(plan: "Plan") -> Any:
    """A table of the plan and its alternatives."""
    columns = ("sample", "tolerate", "proved κ", "best κ", "safe run", "messages")
    table = _table("", *columns)
    for sampled, name in named_sizes(plan).items():
        size = plan.at(sampled)
        if size is None:
            continue
        chance = plan.problem.achieved(sampled, size.tolerated)
        kappas = _kappa(size.kappa), _kappa(size.kappa_best)
        row = (name, sampled, size.tolerated, *kappas, percent(chance), 2 * sampled)
        table.add_row(*map(str, row), style="bold" if sampled == plan.sampled else None)
    return table


def named_sizes(plan: "Plan") -> dict[int, str]:
    """The sample sizes to compare, smallest first, with their names."""
    sizes = {
        plan.n_min: "smallest safe",
        plan.n_th: "paper's n̂_th",
        plan.n_opt: "paper's n̂_opt",
        plan.problem.population: "all clients",
        plan.sampled: "this plan",
    }
    return dict(sorted((n, name) for n, name in sizes.items() if n is not None))


def _if_more(plan: "Plan", outlook: "Outlook") -> str:
    """What happens to the guarantee if there are more Byzantine clients than planned."""
    remedy = "with this sample size, no tolerance would be enough"
    if outlook.tolerated is not None and outlook.tolerated <= plan.tolerated:
        remedy = "the plan still holds"
    elif outlook.tolerated is not None:
        remedy = f"tolerate {outlook.tolerated} to be safe"
    there = "there is" if outlook.byzantine == 1 else "there are"
    overruns = outlook.overrun_rounds
    shown = f"{overruns:.3g}" if overruns < 100 else f"{overruns:.0f}"
    return (
        f"If {there} {counted(outlook.byzantine, 'Byzantine client')} instead of "
        f"{plan.byzantine}, the run is {_what_is_safe(plan)} with probability "
        f"{percent(outlook.confidence)} (on average {shown} of "
        f"{plan.problem.draws} draws are overruns): {remedy}."
    )


def show_scenarios(compared: "list[Scenario]", clients: int, rounds: int) -> None:
    """Print plans for several numbers of Byzantine clients side by side."""
    from rich.console import Console

    console = Console()
    console.print(
        f"Plans for {counted(clients, 'client')} and {counted(rounds, 'round')}, by the number of "
        "Byzantine clients:",
        highlight=False,
    )
    columns = ("sample", "tolerate", "proved κ", "best κ", "if half as many more")
    table = _table("Byzantine", *columns)
    for scenario in compared:
        name = f"{scenario.byzantine} ({100 * scenario.byzantine / clients:.3g}%)"
        if scenario.plan is None or scenario.if_half_more is None:
            table.add_row(name, "none", *[""] * 4)
            continue
        plan, more = scenario.plan, scenario.if_half_more
        kappas = _kappa(plan.kappa), _kappa(plan.kappa_best)
        needs = "no b̂ is safe" if more.tolerated is None else f"needs b̂ = {more.tolerated}"
        if more.tolerated is not None and more.tolerated <= plan.tolerated:
            needs = "still holds"
        after = f"{more.byzantine}: {percent(more.confidence)}, {needs}"
        table.add_row(name, str(plan.sampled), str(plan.tolerated), *kappas, after)
    console.print(table)
    rule = next((s.plan.rule for s in compared if s.plan is not None), None)
    console.print(_legend(rule), style="dim", markup=False)
    console.print(
        "Last column: if there are half as many Byzantine clients again as the row plans for, the "
        "probability that no round has more of them than tolerated, and the tolerance that this "
        "sample would need. Plan for the largest number that you cannot rule out; --byzantine "
        "shows that plan in full.",
        style="dim",
        highlight=False,
    )
    for scenario in compared:
        if scenario.problem is not None:
            console.print(f"• {scenario.byzantine} Byzantine: {scenario.problem}", markup=False)
