"""Plans for several numbers of Byzantine clients, for those who do not know theirs."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from fedro.common.checks import count
from fedro.planning.planner import MAX_COUNT, Outlook, Plan, byzantine_count, plan

SHARES = ("0%", "1%", "5%", "10%", "20%", "30%")


@dataclass(frozen=True)
class Scenario:
    """A plan for one number of Byzantine clients, and what becomes of it if there are more.

    Attributes:
        byzantine: b, the number of Byzantine clients.
        plan: The plan for them, or None if there is none.
        problem: Why there is no plan, or None.
        if_half_more: What the plan guarantees if there are half as many Byzantine clients again.

    Example:
        >>> [(s.byzantine, s.plan.sampled) for s in scenarios(clients=150, rounds=500)]
        [(0, 10), (2, 6), (8, 15), (15, 27), (30, 72), (45, 115)]
    """

    byzantine: int
    plan: Plan | None
    problem: str | None = None
    if_half_more: Outlook | None = None

    def as_dict(self) -> dict[str, Any]:
        """The scenario as plain values for JSON."""
        return {
            "byzantine": self.byzantine,
            "plan": None if self.plan is None else self.plan.as_dict(),
            "problem": self.problem,
            "if_half_more": None if self.if_half_more is None else asdict(self.if_half_more),
        }


def scenarios(
    *, clients: int, rounds: int, byzantine: Sequence[int | str] = SHARES, **options: Any
) -> list[Scenario]:
    """Plan for several numbers of Byzantine clients, if you do not know how many there are.

    Args:
        clients: n, the number of all clients.
        rounds: T, the number of rounds of training.
        byzantine: The numbers of Byzantine clients to plan for, or shares of the clients. Equal
            numbers are planned for once.
        **options: Further arguments of `fedro.plan`.

    Returns:
        A scenario for each number. One that cannot be planned for has a `problem` and no plan.

    Raises:
        ValueError: If an argument is out of range.

    Example:
        >>> doubtful = scenarios(clients=150, rounds=500, byzantine=["10%", "50%"])
        >>> doubtful[0].if_half_more.tolerated, doubtful[1].plan
        (12, None)
    """
    clients = count("clients", clients, 1, MAX_COUNT)
    numbers = dict.fromkeys(byzantine_count(bad, clients) for bad in byzantine)
    return [_scenario(bad, clients=clients, rounds=rounds, **options) for bad in numbers]


def _scenario(byzantine: int, **options: Any) -> Scenario:
    if byzantine:
        # Mistakes that have nothing to do with this number of Byzantine clients are errors.
        plan(byzantine=0, **{**options, "max_kappa": None, "max_fraction": None, "sampled": None})
    try:
        chosen = plan(byzantine=byzantine, **options)
    except ValueError as error:
        if not byzantine:
            raise
        return Scenario(byzantine, None, str(error))
    return Scenario(byzantine, chosen, None, chosen.if_half_more)
