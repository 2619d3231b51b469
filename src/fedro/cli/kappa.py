"""``fedro kappa``: the proved κ of a rule beside the κ that an adversarial search finds."""

import json
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from fedro.cli.common import AsJson, app, explains_errors, import_from_current_folder


@app.command()
@explains_errors
def kappa(
    rule: Annotated[str, typer.Argument(help="The rule, such as 'nnm | trimmed_mean'.")],
    sampled: Annotated[int, typer.Option(help="Number of updates (n̂).")],
    tolerated: Annotated[int, typer.Option(help="Number of Byzantine updates to tolerate (b̂).")],
    seconds: Annotated[float, typer.Option(help="Time for the adversarial search.")] = 10.0,
    seed: Annotated[int, typer.Option(help="Seed of the adversarial search.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Compare the proved κ of a rule with the lower bound and with an adversarial search."""
    from fedro.rules import parse_rule
    from fedro.rules.kappa import lower_bound
    from fedro.rules.kappa_search import search_kappa

    import_from_current_folder()
    parsed = parse_rule(rule, b=tolerated)
    proved = parsed.kappa(sampled)
    with _search_progress(seconds, hidden=as_json) as progress:
        search = search_kappa(
            parsed, sampled, tolerated, seconds=seconds, seed=seed, progress=progress
        )
    bound = lower_bound(sampled, tolerated)
    if as_json:
        result = {
            "rule": str(parsed),
            "sampled": sampled,
            "tolerated": tolerated,
            "proved": None if proved is None else float(proved),
            "source": None if proved is None else proved.source,
            "lower_bound": bound,
            "largest_found": search.kappa if math.isfinite(search.kappa) else None,
            "unbounded": not math.isfinite(search.kappa),
            "evaluations": search.evaluations,
        }
        print(json.dumps(result, ensure_ascii=False))
        return
    print(f"{parsed} with {sampled} updates, {tolerated} of them Byzantine")
    if proved is None:
        print("  proved κ       none known for this rule")
    else:
        print(f"  proved κ       {proved:.4g}   for this rule: {proved.source}")
    print(f"  lower bound    {bound:.4g}   b/(n−2b), the best possible for any rule")
    print(f"  largest found  {search.kappa:.4g}   in {search.evaluations} evaluations")
    if proved is not None and search.kappa > proved * (1 + 1e-4):
        print("  The search exceeded the proved κ: the proof or the program is wrong.")


@contextmanager
def _search_progress(
    seconds: float, hidden: bool
) -> Iterator[Callable[[float, float], None] | None]:
    """A progress bar over the time of a search, with the largest κ so far."""
    if hidden:
        yield None
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("searching"), BarColumn(), TimeRemainingColumn())
    bar = Progress(*columns, TextColumn("κ ≥ {task.fields[best]:.4g}"), transient=True)
    with bar:
        task = bar.add_task("", total=seconds, best=0.0)
        yield lambda used, best: bar.update(task, completed=used * seconds, best=best)
