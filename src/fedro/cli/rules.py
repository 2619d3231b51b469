"""``fedro rules``, ``attacks`` and ``kappa``: what there is, and how good it is."""

import contextlib
import json
import math
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from fedro.cli.common import app, explains_errors

if TYPE_CHECKING:
    from rich.text import Text


Markdown = Annotated[
    bool, typer.Option("--markdown", help="Print the table as Markdown, for documents.")
]


@app.command()
@explains_errors
def rules(markdown: Markdown = False) -> None:
    """All rules and mixers: what they do, when they may be used, what is proved."""
    from fedro.rules.listing import as_markdown, as_text

    _print(as_markdown if markdown else as_text)


@app.command()
@explains_errors
def attacks(markdown: Markdown = False) -> None:
    """All attacks: what bad clients send, and what they must know for it."""
    from fedro.attacks.listing import as_markdown, as_text

    _print(as_markdown if markdown else as_text)


def _print(listing: "Callable[[], str | Text]") -> None:
    found = listing()
    if isinstance(found, str):
        print(found)
    else:
        from rich.console import Console

        Console().print(found)


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
    from fedro.rules import parse_rule
    from fedro.rules.kappa import lower_bound
    from fedro.rules.kappa_search import search_kappa

    sys.path.insert(0, "")  # your own rules are found from where you are
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
