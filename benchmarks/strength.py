"""How strong the searched attacks are, compared with a dense grid and with ByzFL's search.

python benchmarks/strength.py

All of them attack the same rule. The measure is how far an attack moves the aggregate from the mean
of the honest updates. ByzFL's numbers are fractions of ours.
"""

import sys
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "tests/helpers"))
import peers
from fedro.attacks import Defense, View, parse_attack
from fedro.attacks.defense import trial_messages
from fedro.attacks.response_curve import HonestRows, ResponseCurve
from fedro.attacks.search import OCTAVES
from fedro.rules import parse_rule

RULES = ["krum", "geometric_median", "median", "trimmed_mean", "multi_krum", "nnm | trimmed_mean"]
ATTACKS = {
    "optimal_alie": "Optimal_ALittleIsEnough",
    "optimal_foe": "Optimal_InnerProductManipulation",
}
ROUNDS, DENSE_ROUNDS = 200, 60  # random rounds; of these, rounds with a dense grid


def view(rule: str, seed: int) -> View:
    """A random round of 7 to 26 clients, up to half of them Byzantine."""
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


def moves(round_: View, message: torch.Tensor) -> float:
    with trial_messages(round_) as trial:
        return trial(message)


def ours(attack: str, round_: View) -> float:
    rows = parse_attack(attack).forge(round_).rows
    assert isinstance(rows, torch.Tensor)
    return moves(round_, rows)


def byzfl(attack: str, round_: View) -> float:
    make = getattr(peers.byzfl("attacks"), ATTACKS[attack])
    message = make(agg=round_.aggregate, pre_agg_list=[], f=len(round_.byzantine))(
        round_.updates[torch.from_numpy(round_.honest)]
    )
    return moves(round_, torch.as_tensor(message, dtype=torch.float32))


def dense(attack: str, round_: View) -> float:
    """The best of 2,000 strengths."""
    v = round_.honest_std if attack == "optimal_alie" else -round_.honest_mean
    assert isinstance(round_.aggregate, Defense)
    curve = ResponseCurve(HonestRows(round_, round_.aggregate), v, round_.aggregate)
    strengths = curve.scale * np.logspace(*OCTAVES, 1000, base=2.0)
    return max(curve(float(t)).distance for t in [*strengths, *-strengths])


def main() -> None:
    print(f"| attack | rule | ours / dense grid, least of {DENSE_ROUNDS} ", end="")
    print(f"| ByzFL / ours, mean of {ROUNDS} | least | below 0.9 |\n|---|---|---|---|---|---|")
    for attack in ATTACKS:
        for rule in RULES:
            near = [
                ours(attack, view(rule, s)) / dense(attack, view(rule, s))
                for s in range(DENSE_ROUNDS)
            ]
            shares = np.array(
                [
                    byzfl(attack, view(rule, s)) / max(ours(attack, view(rule, s)), 1e-12)
                    for s in range(ROUNDS)
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
