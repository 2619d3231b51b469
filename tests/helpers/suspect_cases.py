"""Rounds in which some clients work against the others or send copies, without any training."""

from collections.abc import Callable, Collection
from typing import Any

import numpy as np

Cosine = Callable[[int, int], float]  # of a client in a round, before noise


def rounds_of(
    rounds: int,
    clients: int = 20,
    sampled: int = 12,
    *,
    cosine: Cosine = lambda client, round: 0.5,
    copying: Collection[int] = (),
    byzantine: Collection[int] | None = (),
    void: Collection[int] = (),
    noise: float = 0.05,
    seed: int = 0,
) -> list[dict[str, Any]]:
    """Lines of rounds.jsonl, with what `fedro.server.suspect_report` reads of them.

    Args:
        rounds: The number of rounds.
        clients: The number of clients.
        sampled: How many of them are in a round.
        cosine: The cosine with the aggregate.
        copying: Clients that send the same update as each other.
        byzantine: The Byzantine clients; None in a deployment.
        void: The rounds that are void.
        noise: The standard deviation of the cosines.
        seed: The seed of the draws and the noise.
    """
    rng = np.random.default_rng(seed)
    lines = []
    for round in range(rounds):
        drawn = rng.choice(clients, sampled, replace=False).tolist()
        cosines = [cosine(client, round) + noise * rng.standard_normal() for client in drawn]
        group = sorted(set(copying) & set(drawn))
        facts = {
            "clients": drawn,
            "cosine": np.round(np.clip(cosines, -1, 1), 4).tolist(),
            "distance": rng.permutation(sampled).tolist(),
            "norm": rng.permutation(sampled).tolist(),
            "copies": [group] if len(group) > 1 else [],
        }
        lines.append(
            {
                "round": round,
                "sampled": drawn,
                "byzantine": None if byzantine is None else sorted(set(byzantine) & set(drawn)),
                "void": "too few replies" if round in void else None,
                "evidence": None if round in void else facts,
            }
        )
    return lines


def against(*bad: int, since: int = 0) -> Cosine:
    """Cosines of clients that work against the others from a round on."""
    return lambda client, round: -0.5 if client in bad and round >= since else 0.5
