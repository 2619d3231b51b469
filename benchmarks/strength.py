"""How strong the searched attacks are: beside a dense grid, and beside ByzFL's search.

python benchmarks/strength.py

The same rule is attacked by all; an attack counts by how far it moves the rule's output from the
mean of the honest rows. ByzFL's numbers are shares of ours.
"""

import sys
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "tests/helpers"))
import peers
from fedro.attacks import Defense, View, parse_attack
from fedro.attacks.defense import trying
from fedro.attacks.response_curve import Honest, Landscape
from fedro.attacks.search import OCTAVES
from fedro.rules import parse_rule

RULES = ["krum", "geometric_median", "median", "trimmed_mean", "multi_krum", "nnm | trimmed_mean"]
ATTACKS = {
    "optimal_alie": "Optimal_ALittleIsEnough",
    "optimal_foe": "Optimal_InnerProductManipulation",
}
INPUTS, DENSE = 200, 60  # how many random inputs; on how many of them the dense grid is tried


def view(rule: str, seed: int) -> View:
    """A random round: 7 to 26 clients, up to the most that can be tolerated of them bad."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(7, 27))
    bad = int(rng.integers(1, (n - 1) // 2 + 1))
    d = int(rng.integers(10, 200))
    spread = rng.uniform(0.2, 3.0)
    updates = spread * rng.standard_normal((n, d)) * rng.uniform(0.2, 2, d) + rng.normal(size=d)
    return View(
        updates=torch.from_numpy(updates.astype(np.float32)),
        honest=np.arange(bad, n),
        byzantine=np.arange(bad),
        ids=np.arange(n),
        model=torch.zeros(d),
        server_lr=1.0,
        tolerated=bad,
        round=0,
        rng=rng,
        aggregate=Defense(parse_rule(rule), bad),
    )


def moves(round: View, message: torch.Tensor) -> float:
    with trying(round) as trial:
        return trial(message)


def ours(attack: str, round: View) -> float:
    rows = parse_attack(attack).forge(round).rows
    assert isinstance(rows, torch.Tensor)
    return moves(round, rows)


def byzfl(attack: str, round: View) -> float:
    make = getattr(peers.byzfl("attacks"), ATTACKS[attack])
    found = make(agg=round.aggregate, pre_agg_list=[], f=len(round.byzantine))(
        round.updates[torch.from_numpy(round.honest)]
    )
    return moves(round, torch.as_tensor(found, dtype=torch.float32))


def dense(attack: str, round: View) -> float:
    """The best of 2,000 strengths."""
    v = round.honest_std if attack == "optimal_alie" else -round.honest_mean
    assert isinstance(round.aggregate, Defense)
    landscape = Landscape(Honest(round, round.aggregate), v, round.aggregate)
    sizes = landscape.scale * np.logspace(*OCTAVES, 1000, base=2.0)
    return max(landscape.look(float(t)).value for t in [*sizes, *-sizes])


def main() -> None:
    print(f"| attack | rule | ours / dense grid, least of {DENSE} ", end="")
    print(f"| ByzFL / ours, mean of {INPUTS} | least | below 0.9 |\n|---|---|---|---|---|---|")
    for attack in ATTACKS:
        for rule in RULES:
            near = [
                ours(attack, view(rule, s)) / dense(attack, view(rule, s)) for s in range(DENSE)
            ]
            shares = np.array(
                [
                    byzfl(attack, view(rule, s)) / max(ours(attack, view(rule, s)), 1e-12)
                    for s in range(INPUTS)
                ]
            )
            name = rule.replace("|", "\\|")
            print(
                f"| {attack} | {name} | {min(near):.4f} | {shares.mean():.2f} | {shares.min():.2f} "
                f"| {(shares < 0.9).mean():.0%} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
