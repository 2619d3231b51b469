"""What a strategy was told, checked once."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from logging import WARNING
from pathlib import Path
from typing import Any

from flwr.common.logger import log
from flwr.serverapp import Grid

from fedro.common.checks import count
from fedro.flower.exchange import Clock
from fedro.planning import Plan
from fedro.rules import Rule, parse_rule
from fedro.server import TrainingSettings, is_robust

Order = Callable[[Grid, list[int]], Sequence[int]]
KEYS = (
    *("dataset", "clients", "byzantine", "rule", "sampled", "tolerated", "confidence", "bound"),
    *("local_steps", "client_lr", "server_lr", "evaluate_every", "checkpoint_every"),
)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """All that stays the same over a run."""

    plan: Plan
    rule: Rule
    config: dict[str, Any]  # for the run folder: the keys of an experiment that it has
    folder: Path | None
    resume: bool
    keep_checkpoints: int
    seed: int | None  # None: a secret one
    evaluate_clients: int
    patience: int
    online_wait: float
    quarantine: int | None
    statistics: Collection[str] | None
    order: Order | None
    arrays_key: str
    config_key: str
    clock: Clock

    @property
    def server_lr(self) -> float:
        """γ_s."""
        return float(self.config["server_lr"])

    def told(self, round: int) -> dict[str, int | float]:
        """γ_c and K of a round, for the clients; what was not given is the app's own affair."""
        known = {
            key: self.config[key] for key in ("client_lr", "local_steps") if key in self.config
        }
        found: dict[str, int | float] = {}
        if "client_lr" in known:
            found["lr"] = TrainingSettings(**known).lr(round)
        if "local_steps" in known:
            found["local-steps"] = known["local_steps"]
        return found


def checked_plan(plan: object) -> Plan:
    """The plan, if it is one."""
    if not isinstance(plan, Plan):
        raise ValueError("plan=…: give what fedro.plan(clients=…, byzantine=…, rounds=…) gives")
    return plan


def checked_rule(text: str, plan: Plan) -> Rule:
    """The rule, if it can be used with this plan and without data of the server's own."""
    rule = parse_rule(text)
    if rule.b is not None:
        raise ValueError(f"rule={text!r} names b: leave it out, the plan has it")
    rule.kappa(plan.sampled, plan.tolerated)  # raises where the rule may not be used
    needs = [entry.name for entry in rule.entries if entry.reference == "needed"]
    if needs:
        raise ValueError(f"rule={text!r}: {needs[0]} needs an update of the server's own data")
    if plan.byzantine and not is_robust(rule):
        log(WARNING, "rule=%r withstands no bad client, and %d may be bad", text, plan.byzantine)
    return rule


def configuration(plan: Plan, seed: int | None, **given: Any) -> dict[str, Any]:
    """The keys of an experiment that a run on Flower has, checked like those of a simulation."""
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
    unknown = {"client_lr", "local_steps"} - known.keys()
    values = {"dataset": "flower", **settings.as_dict()}
    values = {key: values[key] for key in KEYS if key not in unknown}
    return values if seed is None else {**values, "seed": count("seed", seed, 0)}
