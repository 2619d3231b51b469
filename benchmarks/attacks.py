"""Attacks in units of `x.sum()` over the same matrix: the messages made, and written into it.

python benchmarks/attacks.py
"""

from collections.abc import Callable, Iterator

import numpy as np
import torch
from timing import best_of

from fedro.attacks import View, parse_attack

N, B, D = 26, 11, 2_368_318
LIMIT = 3  # units
PLAIN = ["sign_flip", "sign_flip(own=True)", "foe", "alie", "mimic", "mimic(warmup=1)"]
PLAIN += ["zero", "nan", "inf", "huge", "gauss(std=1.0)"]  # label_flip and silent cost nothing


def view(x: torch.Tensor, memory: dict[str, torch.Tensor]) -> View:
    """A round in which every other client is bad, until all the bad ones have a place."""
    return View(
        updates=x,
        honest=np.setdiff1d(np.arange(N), np.arange(B) * 2),
        byzantine=np.arange(B) * 2,
        ids=np.arange(N),
        model=torch.zeros(D),
        server_lr=1.0,
        tolerated=B,
        round=1,
        rng=np.random.default_rng(1),
        memory=dict(memory),
    )


def action(text: str, x: torch.Tensor) -> Callable[[], None]:
    """A later round of an attack, after one that filled its memory."""
    attack, first = parse_attack(text), view(x, {})
    attack.forge(first).write(x, first.byzantine)

    def act() -> None:
        later = view(x, first.memory)
        attack.forge(later).write(x, later.byzantine)

    return act


def table(times: int = 10) -> Iterator[str]:
    """All attacks in one run, taking turns."""
    x = torch.randn(N, D, generator=torch.Generator().manual_seed(N))
    best = best_of({"unit": x.sum, **{text: action(text, x) for text in PLAIN}}, times)
    unit = best.pop("unit")
    yield f"n̂={N}, {B} bad, d={D:,}, float32, {torch.get_num_threads()} threads; "
    yield f"one unit, `x.sum()`, is {1e3 * unit:.1f} ms.\n"
    yield "| attack | ms | units | limit |\n|---|---|---|---|"
    for text, seconds in best.items():
        yield f"| {text} | {1e3 * seconds:.1f} | {seconds / unit:.1f} | {LIMIT} |"


if __name__ == "__main__":
    for line in table():
        print(line, flush=True)
