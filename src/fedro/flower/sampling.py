"""Who is online, and whether the plan's n̂ and b̂ are safe with them."""

from collections.abc import Callable, Collection
from dataclasses import replace
from logging import INFO
from typing import NamedTuple

from flwr.common.logger import log
from flwr.serverapp import Grid

from fedro.flower.exchange import REAL, Clock, readable
from fedro.planning import Plan
from fedro.planning.feasibility import tolerated_at


class Draw(NamedTuple):
    """How many of those online are invited, and how many bad ones among them are tolerated."""

    available: int
    sampled: int
    tolerated: int


def safe_draw(plan: Plan, available: int, sampled: int | None = None) -> Draw | None:
    """A draw that keeps the plan's confidence with these nodes online; None if none does.

    The worst case has every bad client online, and nodes beyond those that were planned for are
    bad. Each draw is as safe as one of the plan's, so that all together are. Where fewer nodes are
    online than planned, more is tolerated.
    """
    bad = plan.byzantine + max(0, available - plan.clients)
    if 2 * bad >= available:
        return None
    here = replace(plan.setting, population=available, byzantine=bad)
    wanted = min(sampled or plan.sampled, available)
    if wanted == plan.sampled and here.holds(wanted, plan.tolerated):
        return Draw(available, wanted, plan.tolerated)
    tolerated = tolerated_at(here, wanted)
    return None if tolerated is None else Draw(available, wanted, tolerated)


def as_planned(plan: Plan, available: int) -> bool:
    """Whether so many nodes allow the plan's own n̂ and b̂."""
    draw = safe_draw(plan, available)
    return draw is not None and (draw.sampled, draw.tolerated) == (plan.sampled, plan.tolerated)


def online(
    grid: Grid,
    enough: Callable[[int], bool],
    seconds: float,
    without: Collection[int] = (),
    clock: Clock = REAL,
) -> list[int]:
    """The nodes that are online, in order of their ids, after a wait for enough of them."""
    deadline, told = clock.now() + seconds, -1
    while True:
        nodes = [node for node in _connected(grid) if node not in without]
        left = deadline - clock.now()
        if enough(len(nodes)) or left <= 0:
            return nodes
        if len(nodes) != told:
            log(INFO, "Waiting up to %.0f s for more nodes: %d are online.", left, len(nodes))
            told = len(nodes)
        clock.sleep(min(1.0, left))


def _connected(grid: Grid) -> list[int]:
    try:
        return sorted({int(node) for node in grid.get_node_ids()})
    except Exception as error:  # a connection that fails now may be back before the wait is over
        log(INFO, "The nodes that are online cannot be told: %s", readable(error))
        return []
