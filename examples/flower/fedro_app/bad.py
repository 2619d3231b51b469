"""What bad clients do: attacks of fedro that a client can do alone, and ways to break down."""

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

ALONE = {"own data", "own update"}  # what a client knows who has no friends
BREAKDOWNS = ("raise", "crash", "wrong-shape")
NOT_ALONE = ("takeover", "silent_when_weak")  # they depend on how many bad ones are invited


def attacks_of(config: Config, clients: int) -> dict[int, str]:
    """Who is bad, by partition, and what each does."""
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
            _ = kind.strip() in BREAKDOWNS or alone(kind)
    return dict(zip(map(int, who), what if len(what) > 1 else what * len(who), strict=True))


def now(text: str, round: int) -> str:
    """What a bad client does in this round: attacks with "/" between them come by turns."""
    kinds = text.split("/")
    return kinds[round % len(kinds)].strip()


def alone(text: str) -> Attack:
    """The attack, if a client can do it that sees no others; `sign_flip` flips its own update."""
    stages = tuple(
        stage._replace(options={"own": True, **stage.options})
        if stage.name == "sign_flip"
        else stage
        for stage in parse_attack(text).stages
    )
    attack = Attack(stages)
    if attack.knows <= ALONE and not {stage.name for stage in stages} & {*NOT_ALONE}:
        return attack
    names = [
        name for name, e in ATTACKS.items() if e.knowledge({}) <= ALONE and name not in NOT_ALONE
    ]
    raise ValueError(
        f"attack={text!r}: a client alone cannot do that, it sees no updates but its own; use one "
        f"of {', '.join([*names, 'sign_flip', *BREAKDOWNS])}"
    )


def break_down(kind: str | None, config: Config) -> None:
    """Raise, crash, or be silent until it is too late."""
    if kind == "raise":
        raise RuntimeError("this client is told to fail")
    if kind == "crash":
        os.kill(os.getpid(), signal.SIGKILL)
    if kind and kind not in BREAKDOWNS and "silence" in alone(kind).hooks:
        time.sleep(1.2 * float(config["timeout"]))
        raise TimeoutError("this client is told to be silent")


def forge(
    attack: Attack, setup: Setup, model: Tensor, update: Tensor, round: int, client: int
) -> None:
    """Write over the update what a bad client sends instead."""
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
