"""What attacks cost: to compute the messages and write them into the matrix of updates.

python benchmarks/attacks.py

Attacks that search for their strength are measured in aggregations by the rule they attack, the
others in units of `x.sum()` over the same matrix.
"""

import os
from collections.abc import Callable, Iterator

os.environ["GOMP_SPINCOUNT"] = "10000"  # as the command `fedro` does, before torch is loaded

import numpy as np
import torch
from timing import measure

from fedro.attacks import Defense, View, parse_attack
from fedro.rules import parse_rule

N, B, D = 26, 11, 2_368_318
MAX_UNITS = 3
MODEL = torch.zeros(D)
PLAIN = ["sign_flip", "sign_flip(own=True)", "foe", "alie", "mimic", "mimic(warmup=1)"]
PLAIN += ["zero", "nan", "inf", "huge", "gauss(std=1.0)", "min_max", "min_sum"]
PLAIN += ["framing(victim=1)", "sign_flip | noisy", "below_the_line"]
SEARCHES = ["optimal_alie", "optimal_foe", "agr_tailored", "ambush", "worst"]
MAX_AGGREGATIONS = {  # few for rules whose output is a weighted sum
    "krum": 3,
    "geometric_median": 3,
    "multi_krum": 3,
    "mda": 3,
    "median": 20,
    "trimmed_mean": 20,
    "nnm | trimmed_mean": 20,
}


def view(x: torch.Tensor, memory: dict[str, torch.Tensor], rule: str = "mean") -> View:
    """A round in which every other row, from the first, is a Byzantine client's."""
    return View(
        updates=x,
        honest=np.setdiff1d(np.arange(N), np.arange(B) * 2),
        byzantine=np.arange(B) * 2,
        ids=np.arange(N),
        model=MODEL,
        server_lr=1.0,
        tolerated=B,
        round=1,
        rng=np.random.default_rng(1),
        memory=dict(memory),
        aggregate=Defense(parse_rule(rule), B),
    )


def action(text: str, x: torch.Tensor) -> Callable[[], None]:
    """A later round of an attack, after one that filled its memory."""
    attack, first = parse_attack(text), view(x, {})
    attack.forge(first).write(x, first.byzantine)

    def act() -> None:
        later = view(x, first.memory)
        attack.forge(later).write(x, later.byzantine)

    return act


def table(times: int = 15) -> Iterator[str]:
    """All attacks in one run, taking turns."""
    x = torch.randn(N, D, generator=torch.Generator().manual_seed(N))
    times_of = measure(x.sum, {text: action(text, x) for text in PLAIN}, times)
    yield f"n̂={N}, {B} Byzantine, d={D:,}, float32, {torch.get_num_threads()} threads; "
    yield f"one unit, `x.sum()`, is {1e3 * times_of.pop('unit').seconds:.1f} ms at best.\n"
    yield "| attack | ms | units | limit |\n|---|---|---|---|"
    for text, (seconds, units) in times_of.items():
        yield f"| {text} | {1e3 * seconds:.1f} | {units:.1f} | {MAX_UNITS} |"


def searches(times: int = 4) -> Iterator[str]:
    """Each search against each rule, in aggregations by that rule."""
    x = torch.randn(N, D, generator=torch.Generator().manual_seed(N))
    yield "\nSearches, in aggregations by the rule that is attacked:\n"
    yield "| rule | aggregation, ms | most | " + " | ".join(SEARCHES) + " |"
    yield "|---" * (3 + len(SEARCHES)) + "|"
    for rule, most in MAX_AGGREGATIONS.items():
        server = parse_rule(rule, b=B)
        actions: dict[str, Callable[[], object]] = {
            text: lambda text=text, rule=rule: parse_attack(text).forge(view(x, {}, rule))
            for text in SEARCHES
        }
        times_of = measure(lambda server=server: server(x), actions, times)
        one = times_of.pop("unit").seconds
        cells = " | ".join(f"{units:.1f}" for _, units in times_of.values())
        yield f"| {rule.replace('|', chr(92) + '|')} | {1e3 * one:.0f} | {most} | {cells} |"


if __name__ == "__main__":
    for line in (*table(), *searches()):
        print(line, flush=True)
