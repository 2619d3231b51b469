"""What several figures share: the paper's four attacks and how they look, and what is saved."""

import math
from collections.abc import Collection, Mapping

from fedro.paper.evidence import interval
from fedro.simulation.experiment import Experiment

ATTACKS = {
    "none": "no attack",
    "sign_flip": "sign flipping",
    "foe": "fall of empires",
    "alie": "a little is enough",
    "mimic": "mimic",
}
LOOKS = {  # colors that also the color-blind tell apart (Okabe and Ito), and a mark for each
    "none": ("#000000", "o"),
    "sign_flip": ("#D55E00", "s"),
    "foe": ("#0072B2", "^"),
    "alie": ("#009E73", "D"),
    "mimic": ("#CC79A7", "v"),
}
CHOICE = (
    "attacks with the defaults of `fedro attacks` (foe with τ = 2, alie's z from the quantile, "
    "mimic's target from its warm-up): the paper states no factors"
)

SMALL = "mlp(hidden=64, normalize=True)"  # a model for two cores


def data_taken(datasets: Collection[str]) -> list[str]:
    """That FEMNIST's writers need not be the paper's."""
    if "femnist" not in datasets:
        return []
    return ["the first 150 writers in the files at hand; the paper takes those of LEAF's 5% sample"]


def shortened(base: Experiment, rounds: int) -> Experiment:
    """Fewer rounds, with the steps of the learning rate where they were in proportion."""
    rate = base.client_lr
    if isinstance(rate, list):
        rate = [(math.floor(start * rounds / base.rounds), value) for start, value in rate]
    return base.replace(rounds=rounds, client_lr=rate)


def told(differences: Mapping[str, Mapping[int, float]]) -> str:
    """The difference that each attack makes, for people."""
    return "; ".join(
        f"{ATTACKS[attack]} {interval(found.values()) if found else 'no pairs'}"
        for attack, found in differences.items()
    )
