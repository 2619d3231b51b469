"""What Byzantine clients do: attacks that a client can carry out alone, and ways to fail."""

import os
import signal
import time
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from fedro.attacks import ATTACKS, Attack, View, parse_attack
from fedro.common.streams import stream
from fedro.simulation.setup import Setup
from fedro_app.task import Config

KNOWN_ALONE = {"own data", "own update"}  # what a client knows that sees no other clients
FAILURES = ("raise", "crash", "wrong-shape")
NOT_ALONE = ("takeover", "silent_when_weak")  # depend on how many Byzantine clients are invited


def attacks_of(config: Config, clients: int) -> dict[int, str]:
    """The attack of each attacker, by partition."""
    who = [part.strip() for part in str(config["attackers"]).split(",") if part.strip()]
    if wrong := [part for part in who if not (part.isdecimal() and int(part) < clients)]:
        raise ValueError(
            f"attackers={config['attackers']!r}: {wrong[0]!r} is no partition; give numbers from 0 "
            f'to {clients - 1}, as in attackers="0,3,7"'
        )
    what = [part.strip() for part in str(config["attack"]).split(";")]
    if len(what) not in (1, len(who)) and who:
        raise ValueError(
            f"attack={config['attack']!r} has {len(what)} attacks for {len(who)} attackers: give "
            'one for all, or one for each, with ";" between them'
        )
    for text in what:
        for kind in text.split("/"):
            _ = kind.strip() in FAILURES or parse_lone_attack(kind)
    return dict(zip(map(int, who), what if len(what) > 1 else what * len(who), strict=True))


def attack_in_round(text: str, round: int) -> str:
    """What an attacker does in this round: attacks separated by "/" take turns."""
    kinds = text.split("/")
    return kinds[round % len(kinds)].strip()


def parse_lone_attack(text: str) -> Attack:
    """The attack, if a client can carry it out alone. `sign_flip` flips its own update."""
    stages = tuple(
        stage._replace(options={"own": True, **stage.options})
        if stage.name == "sign_flip"
        else stage
        for stage in parse_attack(text).stages
    )
    attack = Attack(stages)
    if attack.knows <= KNOWN_ALONE and not {stage.name for stage in stages} & {*NOT_ALONE}:
        return attack
    names = [
        name
        for name, e in ATTACKS.items()
        if e.knowledge({}) <= KNOWN_ALONE and name not in NOT_ALONE
    ]
    raise ValueError(
        f"attack={text!r}: a client alone cannot do that, it sees no updates but its own; use one "
        f"of {', '.join([*names, 'sign_flip', *FAILURES])}"
    )


def fail(kind: str | None, round: int, config: Config) -> None:
    """Raise, crash, or stay silent until the server has stopped waiting."""
    if kind == "raise":
        raise RuntimeError("this client is told to fail")
    if kind == "crash":
        os.kill(os.getpid(), signal.SIGKILL)
    if kind and kind not in FAILURES and "silence" in parse_lone_attack(kind).at(round).hooks:
        time.sleep(1.2 * float(config["timeout"]))
        raise TimeoutError("this client is told to be silent")


def forge(
    attack: Attack, setup: Setup, model: Tensor, update: Tensor, round: int, client: int
) -> None:
    """Replace the update by the forged one, in place."""
    rows, e = update[None], setup.experiment
    view = View(
        updates=rows,
        honest=np.empty(0, dtype=np.int64),
        byzantine=np.zeros(1, dtype=np.int64),
        ids=np.array([client]),
        model=model,
        server_lr=e.server_lr,
        tolerated=setup.tolerated,
        round=round,
        rng=stream(e.seed, "attack", round, client),
        trained=setup.flat.trained,
    )
    attack.forge(view).write(rows, view.byzantine)


def misshapen(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The model with one number too many in each array."""
    return {name: torch.cat([value.reshape(-1), torch.zeros(1)]) for name, value in tensors.items()}
