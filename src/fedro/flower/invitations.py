"""Draw the nodes to invite from those that are online, and write the messages to them."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from logging import INFO, WARNING

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, RecordDict
from flwr.common.logger import log
from flwr.serverapp import Grid

from fedro.common.streams import derived
from fedro.common.text import counted
from fedro.common.user_code import UserCode
from fedro.flower.flat_form import FORM_KEY
from fedro.flower.messaging import SYSTEM_CLOCK, Clock, one_line
from fedro.flower.replies import Received
from fedro.flower.session import Draw, Session
from fedro.flower.settings import StrategySettings
from fedro.planning import Plan
from fedro.planning.feasibility import tolerated_at
from fedro.server import sample, timed


def safe_draw(plan: Plan, available: int, sampled: int | None = None) -> Draw | None:
    """A draw that keeps the plan's confidence with this many nodes online, or None.

    The worst case has every Byzantine client online, and every node beyond the planned number of
    clients is Byzantine. Each draw is as safe as one of the plan's, so all draws together are. With
    fewer nodes online than planned, the draw tolerates more.
    """
    byzantine = plan.byzantine + max(0, available - plan.clients)
    if 2 * byzantine >= available:
        return None
    problem = replace(plan.problem, population=available, byzantine=byzantine)
    wanted = min(sampled or plan.sampled, available)
    if wanted == plan.sampled and problem.holds(wanted, plan.tolerated):
        return Draw(available, wanted, plan.tolerated)
    tolerated = tolerated_at(problem, wanted)
    return None if tolerated is None else Draw(available, wanted, tolerated)


def is_as_planned(plan: Plan, available: int) -> bool:
    """Whether the plan's own n̂ and b̂ are safe with this many nodes online."""
    draw = safe_draw(plan, available)
    return draw is not None and (draw.sampled, draw.tolerated) == (plan.sampled, plan.tolerated)


def wait_for_nodes(
    grid: Grid,
    enough: Callable[[int], bool],
    seconds: float,
    without: Collection[int] = (),
    clock: Clock = SYSTEM_CLOCK,
) -> list[int]:
    """The nodes that are online, sorted by id, after waiting up to `seconds` for enough of them."""
    deadline, logged = clock.now() + seconds, -1
    while True:
        nodes = [node for node in _connected(grid) if node not in without]
        remaining = deadline - clock.now()
        if enough(len(nodes)) or remaining <= 0:
            return nodes
        if len(nodes) != logged:
            log(INFO, "Waiting up to %.0f s for more nodes: %d are online.", remaining, len(nodes))
            logged = len(nodes)
        clock.sleep(min(1.0, remaining))


def _connected(grid: Grid) -> list[int]:
    try:
        return sorted({int(node) for node in grid.get_node_ids()})
    except Exception as error:  # the connection may be back before the wait is over
        log(INFO, "The SuperLink did not say which nodes are online: %s", one_line(error))
        return []


def invite_to_train(
    settings: StrategySettings,
    session: Session,
    server_round: int,
    arrays: ArrayRecord,
    config: ConfigRecord,
    grid: Grid,
) -> list[Message]:
    """Messages to n̂ of the nodes that are online, or none if no draw from them is safe."""
    plan, client_config = settings.plan, train_config(settings, server_round, config)
    model = session.layout.vector(arrays)
    round_ = session.begin_round(server_round - 1, model, client_config.get("lr"))
    with timed(round_, "online"):
        nodes = nodes_online(settings, session, grid, settings.online_wait)
    session.available = len(nodes)
    draw = safe_draw(plan, len(nodes))
    round_.void = reason_for_void(draw, settings, len(nodes))
    if draw is None or round_.void is not None:
        return []
    session.draw = draw
    warn_if_unplanned(draw, plan)
    session.invited = draw_nodes(session.seed, round_.round, nodes, draw.sampled)
    session.received = Received(session.invited)
    count_draw(session, plan)
    numbers = [session.ledger.number(node) for node in session.invited]
    round_.sampled = np.array(numbers, dtype=np.int64)
    log(INFO, "configure_train: invited %d of %d nodes", draw.sampled, draw.available)
    record = content(settings, session, arrays, client_config)
    return [Message(record, node, MessageType.TRAIN) for node in session.invited]


def count_draw(session: Session, plan: Plan) -> None:
    """Count the draw of this round, or raise if the plan does not cover it.

    If everybody who is online is invited, nothing is drawn, and nothing is left to chance.
    """
    round, allowed = session.current_round.round, plan.problem.draws
    if session.draw is not None and session.draw.sampled == session.draw.available:
        return
    if session.draw_log.is_new(round, session.invited) and session.draws >= allowed:
        raise ValueError(
            f"the plan is for {counted(allowed, 'draw')}, and all are used up (a round that ran "
            "again with other nodes counts twice): start a new run whose plan has more retries, as "
            "in fedro.plan(retries=20, …)"
        )
    session.draw_log.add(round, session.invited)


def content(
    settings: StrategySettings, session: Session, arrays: ArrayRecord, config: ConfigRecord
) -> RecordDict:
    """What a message to a client holds: the model and the config record."""
    if settings.flat:
        arrays = session.layout.flat_record(session.layout.vector(arrays))
        config = ConfigRecord({**config, FORM_KEY: session.layout.flat_form.to_text()})
    return RecordDict({settings.arrays_key: arrays, settings.config_key: config})


def invite_to_evaluate(
    settings: StrategySettings,
    session: Session,
    server_round: int,
    arrays: ArrayRecord,
    config: ConfigRecord,
    grid: Grid,
) -> list[Message]:
    """Messages to some of the nodes that are online, drawn independently of those that train."""
    nodes = nodes_online(settings, session, grid, 0.0)
    draw = session.evaluation_draw = safe_draw(settings.plan, len(nodes), settings.evaluate_clients)
    session.evaluators = []
    if draw is None:
        log(WARNING, "configure_evaluate: no sample of the %d nodes online is safe", len(nodes))
        return []
    seed = derived(session.seed, "evaluate")
    session.evaluators = draw_nodes(seed, server_round - 1, nodes, draw.sampled)
    log(INFO, "configure_evaluate: invited %d of %d nodes", draw.sampled, draw.available)
    client_config = ConfigRecord({**config, "server-round": server_round})
    record = content(settings, session, arrays, client_config)
    return [Message(record, node, MessageType.EVALUATE) for node in session.evaluators]


def reason_for_void(draw: Draw | None, settings: StrategySettings, available: int) -> str | None:
    """Why nobody can be invited, or None."""
    if draw is None:
        return (
            f"{counted(available, 'node')} online, {settings.plan.byzantine} may be Byzantine: "
            "no sample of them is safe"
        )
    try:
        settings.rule.kappa(draw.sampled, draw.tolerated)
    except ValueError as error:  # the draw tolerates more than the rule can
        return f"{counted(available, 'node')} online: {error}"
    return None


def train_config(
    settings: StrategySettings, server_round: int, config: ConfigRecord
) -> ConfigRecord:
    """The config record for clients: the app's own keys, the round, and γ_c and K if given."""
    own = settings.client_config(server_round - 1)
    for key, value in own.items():
        if config.get(key, value) != value:
            raise ValueError(f"train_config has {key}={config[key]!r}, and FedRo {value}: give one")
    return ConfigRecord({**config, **own, "server-round": server_round})


def nodes_online(
    settings: StrategySettings, session: Session, grid: Grid, wait: float
) -> list[int]:
    """The nodes that may be invited. Each of them is in the ledger afterwards."""
    plan, quarantined = settings.plan, session.ledger.quarantined

    def enough(available: int) -> bool:
        return available >= plan.clients - len(quarantined) or is_as_planned(plan, available)

    nodes = wait_for_nodes(grid, enough, wait, quarantined, settings.clock)
    if settings.order is not None:
        given = nodes
        with UserCode("function order", settings.order):
            nodes = [int(node) for node in settings.order(grid, list(nodes))]
        if sorted(nodes) != given:
            raise ValueError("order=…: it must return the nodes that it was given, each once")
    session.ledger.add_new(nodes, session.state.round)
    return nodes


def draw_nodes(seed: int, round: int, nodes: Sequence[int], sampled: int) -> list[int]:
    """Draw nodes. Places in the list are drawn, because node ids are too large for floats."""
    return [nodes[place] for place in sample(seed, round, len(nodes), sampled).tolist()]


def warn_if_unplanned(draw: Draw, plan: Plan) -> None:
    """Log a warning if a draw differs from the plan."""
    if draw.available > plan.clients:
        text = "%d nodes are online, but the plan is for %d: the others count as Byzantine"
        log(WARNING, text, draw.available, plan.clients)
    if (draw.sampled, draw.tolerated) != (plan.sampled, plan.tolerated):
        text = (
            "With %d nodes online %d are invited and %d tolerated, instead of %d and %d; "
            "fedro.plan(available=…) plans for that"
        )
        log(WARNING, text, *draw, plan.sampled, plan.tolerated)
