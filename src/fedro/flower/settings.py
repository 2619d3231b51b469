"""The arguments of the strategy, and how they are checked."""

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from logging import WARNING
from pathlib import Path
from typing import Any, NamedTuple

from flwr.common.logger import log
from flwr.serverapp import Grid

from fedro.common.checks import count, number
from fedro.flower.messaging import Clock
from fedro.flower.replies import Received
from fedro.flower.session import Draw
from fedro.planning import Plan
from fedro.rules import Rule, parse_rule
from fedro.server import TrainingSettings, is_robust

Order = Callable[[Grid, list[int]], Sequence[int]]
CONFIG_KEYS = (  # in config.toml of the run folder
    *("dataset", "clients", "byzantine", "rule", "sampled", "tolerated", "confidence", "bound"),
    *("local_steps", "client_lr", "server_lr", "evaluate_every", "checkpoint_every"),
    *("exclude", "fdr"),
)


class Quorum(NamedTuple):
    """When a round goes on although some replies are late.

    Attributes:
        late: How many replies may be late.
        seconds: How long the server waits for all replies.
    """

    late: int
    seconds: float

    def reached(self, draw: Draw, rule: Rule, received: Received, seconds: float) -> bool:
        """Whether the round can go on after so many seconds."""
        needed = self.needed(draw, rule)
        if seconds < self.seconds or len(received.taken) < needed:
            return False
        received.silence = f"was late: after {self.seconds:g} s, {needed} replies were enough"
        return True

    def needed(self, draw: Draw, rule: Rule) -> int:
        """How many replies are enough for this draw and for the rule."""
        for replies in range(max(draw.sampled - self.late, 2 * draw.tolerated + 1), draw.sampled):
            with suppress(ValueError):  # the rule needs more
                rule.kappa(replies, draw.tolerated)
                return replies
        return draw.sampled


@dataclass(frozen=True, kw_only=True)
class StrategySettings:
    """The checked arguments of `FedRo`, which stay the same during a run."""

    plan: Plan
    rule: Rule
    config: dict[str, Any]  # the keys of an experiment that also exist in a deployment
    folder: Path | None
    resume: bool
    keep_checkpoints: int
    seed: int | None  # None: draw a secret seed
    evaluate_clients: int
    max_void_rounds: int
    online_wait: float
    quarantine: int | None
    quorum: Quorum | None
    flat: bool
    statistics: Collection[str] | None
    order: Order | None
    arrays_key: str
    config_key: str
    metrics_port: int | None
    clock: Clock

    @property
    def server_lr(self) -> float:
        """The server learning rate γ_s."""
        return float(self.config["server_lr"])

    def client_config(self, round: int) -> dict[str, int | float]:
        """γ_c and K of a round, for the clients. What was not given is up to the app."""
        given = {
            key: self.config[key] for key in ("client_lr", "local_steps") if key in self.config
        }
        values: dict[str, int | float] = {}
        if "client_lr" in given:
            values["lr"] = TrainingSettings(**given).lr(round)
        if "local_steps" in given:
            values["local-steps"] = given["local_steps"]
        return values


def checked_plan(plan: object) -> Plan:
    """The plan, if it is one."""
    if not isinstance(plan, Plan):
        raise ValueError("plan=…: give the result of fedro.plan(clients=…, byzantine=…, rounds=…)")
    return plan


def checked_rule(rule: str | Rule | None, plan: Plan) -> Rule:
    """The rule, by default the plan's, if the plan is for it and it needs no data of the server."""
    parsed = plan.planned_rule.rule if rule is None else parse_rule(rule)
    if parsed is None:
        raise ValueError("the plan is for no rule: say which one runs, as in fedro.plan(rule=…)")
    text = str(parsed)
    if parsed.b is not None:
        raise ValueError(f"rule={text!r} names b: leave it out, the plan has it")
    planned = plan.planned_rule.rule
    if planned is not None and parsed.complete != planned.complete:
        raise ValueError(
            f"rule={text!r}, but the plan is for {plan.rule!r}, and its κ does not hold for "
            f"another rule: leave rule out, or plan with fedro.plan(rule={text!r}, …)"
        )
    parsed.kappa(plan.sampled, plan.tolerated)  # raises if the rule does not work with the plan
    needs = [entry.name for entry in parsed.entries if entry.reference == "needed"]
    if needs:
        raise ValueError(f"rule={text!r}: {needs[0]} needs an update from the server's own data")
    if plan.byzantine and not is_robust(parsed):
        log(
            WARNING,
            "rule=%r withstands no Byzantine client, and %d clients may be Byzantine",
            text,
            plan.byzantine,
        )
    return parsed


def checked_quorum(
    plan: Plan, rule: Rule, replies: int | None, seconds: float | None
) -> Quorum | None:
    """The quorum, if one is given and rounds that it cuts short can be used."""
    if replies is None and seconds is None:
        return None
    if replies is None or seconds is None:
        raise ValueError(
            f"quorum={replies}, quorum_after={seconds}: give both, the number of replies that are "
            "enough and the seconds after which they are"
        )
    needed = 2 * plan.tolerated + 1
    if not needed <= count("quorum", replies, 1) <= plan.sampled:
        raise ValueError(
            f"quorum={replies}: the plan invites {plan.sampled} nodes and tolerates "
            f"{plan.tolerated}, so a quorum must have between {needed} and {plan.sampled} replies"
        )
    rule.kappa(replies, plan.tolerated)  # raises if the rule needs more replies
    number("quorum_after", seconds, "quorum_after > 0, in seconds", lambda x: x > 0)
    return Quorum(plan.sampled - replies, float(seconds))


def configuration(plan: Plan, seed: int | None, **given: Any) -> dict[str, Any]:
    """The configuration for the run folder, checked like the one of a simulation."""
    known = {key: value for key, value in given.items() if value is not None}
    if isinstance(rate := known.get("client_lr"), str) and "local_steps" not in known:
        raise ValueError(f"client_lr={rate!r} needs K: give local_steps too")
    settings = TrainingSettings(
        clients=plan.clients,
        byzantine=plan.byzantine,
        sampled=plan.sampled,
        tolerated=plan.tolerated,
        confidence=plan.confidence,
        bound=plan.bound,
        **known,
    )
    not_given = {"client_lr", "local_steps"} - known.keys()
    values = {"dataset": "flower", **settings.as_dict()}
    values = {key: values[key] for key in CONFIG_KEYS if key not in not_given}
    return values if seed is None else {**values, "seed": count("seed", seed, 0)}
