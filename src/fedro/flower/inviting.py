"""Whom to invite, and what to tell them."""

from collections.abc import Sequence
from logging import INFO, WARNING

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, RecordDict
from flwr.common.logger import log
from flwr.serverapp import Grid

from fedro.common.streams import derived
from fedro.common.text import counted
from fedro.flower.sampling import Draw, as_planned, online, safe_draw
from fedro.flower.session import Session
from fedro.flower.settings import Settings
from fedro.planning import Plan
from fedro.server import sample, timed


def invite_to_train(
    settings: Settings,
    session: Session,
    server_round: int,
    arrays: ArrayRecord,
    config: ConfigRecord,
    grid: Grid,
) -> list[Message]:
    """Messages to n̂ of the nodes that are online; none if no draw from so few is safe."""
    plan, told = settings.plan, train_config(settings, server_round, config)
    done = session.begin(server_round - 1, session.layout.vector(arrays), told.get("lr"))
    with timed(done, "online"):
        nodes = nodes_online(settings, session, grid, settings.online_wait)
    session.available = len(nodes)
    draw = safe_draw(plan, len(nodes))
    done.void = why_not(draw, settings, len(nodes))
    if draw is None or done.void is not None:
        return []
    session.draw = draw
    warn_of(draw, plan)
    if session.draws >= plan.setting.draws:
        allowed = counted(plan.setting.draws, "draw")
        raise ValueError(f"the plan is for {allowed}, and all are used up: plan for more rounds")
    session.draws += 1
    session.invited = drawn(session.seed, done.round, nodes, draw.sampled)
    numbers = [session.ledger.number(node) for node in session.invited]
    done.sampled = np.array(numbers, dtype=np.int64)
    log(INFO, "configure_train: invited %d of %d nodes", draw.sampled, draw.available)
    record = RecordDict({settings.arrays_key: arrays, settings.config_key: told})
    return [Message(record, node, MessageType.TRAIN) for node in session.invited]


def invite_to_evaluate(
    settings: Settings,
    session: Session,
    server_round: int,
    arrays: ArrayRecord,
    config: ConfigRecord,
    grid: Grid,
) -> list[Message]:
    """Messages to some of the nodes that are online, drawn apart from those that train."""
    nodes = nodes_online(settings, session, grid, 0.0)
    draw = session.evaluation = safe_draw(settings.plan, len(nodes), settings.evaluate_clients)
    session.evaluators = []
    if draw is None:
        log(WARNING, "configure_evaluate: with %d nodes online none is safe", len(nodes))
        return []
    seed = derived(session.seed, "evaluate")
    session.evaluators = drawn(seed, server_round - 1, nodes, draw.sampled)
    log(INFO, "configure_evaluate: invited %d of %d nodes", draw.sampled, draw.available)
    told = ConfigRecord({**config, "server-round": server_round})
    record = RecordDict({settings.arrays_key: arrays, settings.config_key: told})
    return [Message(record, node, MessageType.EVALUATE) for node in session.evaluators]


def why_not(draw: Draw | None, settings: Settings, available: int) -> str | None:
    """Why nobody can be invited, or None."""
    if draw is None:
        bad = settings.plan.byzantine
        return f"{counted(available, 'node')} online, {bad} may be bad: no sample of them is safe"
    try:
        settings.rule.kappa(draw.sampled, draw.tolerated)
    except ValueError as error:  # more is tolerated than the rule can
        return f"{counted(available, 'node')} online: {error}"
    return None


def train_config(settings: Settings, server_round: int, config: ConfigRecord) -> ConfigRecord:
    """What clients are told: the app's own keys, the round, and γ_c and K where given."""
    told = settings.told(server_round - 1)
    for key, value in told.items():
        if config.get(key, value) != value:
            raise ValueError(f"train_config has {key}={config[key]!r}, and FedRo {value}: give one")
    return ConfigRecord({**config, **told, "server-round": server_round})


def nodes_online(settings: Settings, session: Session, grid: Grid, wait: float) -> list[int]:
    """The nodes that may be invited, each known to the ledger."""
    plan, out = settings.plan, session.ledger.quarantined

    def enough(available: int) -> bool:
        return available >= plan.clients - len(out) or as_planned(plan, available)

    nodes = online(grid, enough, wait, out, settings.clock)
    if settings.order is not None:
        given, nodes = nodes, [int(node) for node in settings.order(grid, list(nodes))]
        if sorted(nodes) != given:
            raise ValueError("order=…: it must give the nodes that it was given, each once")
    session.ledger.meet(nodes, session.state.round)
    return nodes


def drawn(seed: int, round: int, nodes: Sequence[int], sampled: int) -> list[int]:
    """Some of the nodes; places in the list are drawn, since node ids are too large for floats."""
    return [nodes[place] for place in sample(seed, round, len(nodes), sampled).tolist()]


def warn_of(draw: Draw, plan: Plan) -> None:
    """Say where a draw is not as it was planned."""
    if draw.available > plan.clients:
        text = "%d nodes are online, planned were %d: those beyond count as bad"
        log(WARNING, text, draw.available, plan.clients)
    if (draw.sampled, draw.tolerated) != (plan.sampled, plan.tolerated):
        text = (
            "With %d nodes online %d are invited and %d tolerated, instead of %d and %d; "
            "fedro.plan(available=…) plans for that"
        )
        log(WARNING, text, *draw, plan.sampled, plan.tolerated)
