"""What server and clients share: the plan, the experiment, its data and its model."""

import logging
from collections.abc import Mapping
from functools import lru_cache

import fedro
from fedro import Experiment
from fedro.common.checks import count, number
from fedro.common.shares import is_share, share_of
from fedro.simulation.experiment import parse_changes, read_toml
from fedro.simulation.preparation import prepare
from fedro.simulation.setup import Setup

Config = Mapping[str, bool | float | int | str]
PLANNED = (
    "byzantine",
    "sampled",
    "tolerated",
    "attack",
)  # keys of an experiment that the run config replaces
log = logging.getLogger("flwr")


def with_clients(config: Config, online: object) -> Config:
    """The run config with the number of clients: as given, or else those online."""
    if given := count("clients", config["clients"], 0):
        return {**config, "clients": given}
    clients = count("num-partitions", online, 1)
    byzantine = share_of("byzantine", config["byzantine"], clients, of="the clients")
    if is_share(config["byzantine"]) and 2 * count("byzantine", byzantine, 0) >= clients:
        return {
            **config,
            "clients": clients,
            "byzantine": 0,
        }  # the server warns that these are too few
    return {**config, "clients": clients}


def plan_of(config: Config) -> fedro.Plan:
    """The plan for this federation."""
    clients = count("clients", config["clients"], 1)
    sampled = count("sampled", config["sampled"], 0, clients, "clients")
    dropout = number("dropout", config["dropout"], "0 ≤ dropout < 1", lambda x: 0 <= x < 1)
    e = experiment_of(config)
    return fedro.plan(
        clients=clients,
        byzantine=config["byzantine"],
        rounds=e.rounds,
        confidence=e.confidence,
        bound=e.bound,
        rule=e.rule,
        sampled=sampled or None,
        available=count("available", config["available"], 0, clients, "clients") or None,
        dropout=dropout,
        retries=count("retries", config["retries"], 0),
    )


def experiment_of(config: Config) -> Experiment:
    """The experiment that the run config names, with its changes."""
    changes = [change for change in str(config["set"]).split(";") if change.strip()]
    values = {**read_toml(str(config["experiment"]))[0], **parse_changes(changes)}
    if taken := [key for key in ("clients", "rounds", *PLANNED) if key in parse_changes(changes)]:
        raise ValueError(
            f"set={config['set']!r}: {taken[0]} has a key of its own in the run config"
        )
    values = {key: value for key, value in values.items() if key not in PLANNED}
    if config["data"]:
        values["dataset"] = f"{values.get('dataset', 'digits')}(path={config['data']!r})"
    rounds = count("num-server-rounds", config["num-server-rounds"], 1)
    every = count("evaluate-every", config["evaluate-every"], 0) or rounds
    given = {"clients": config["clients"], "rounds": rounds, "evaluate_every": every}
    return Experiment(**{**values, **given})


def setup_of(config: Config) -> Setup:
    """The experiment with its data and model. Each process prepares it once."""
    return _setup_of(tuple(sorted(config.items())))


@lru_cache(maxsize=1)
def _setup_of(items: tuple[tuple[str, bool | float | int | str], ...]) -> Setup:
    config = dict(items)
    plan = plan_of(config)
    chosen = {"sampled": plan.sampled, "tolerated": plan.tolerated}
    return prepare(experiment_of(config).replace(**chosen))


def yes_or_no(config: Config, key: str) -> bool:
    """The value of a key that must be true or false."""
    value = config[key]
    if not isinstance(value, bool):
        raise ValueError(f"{key}={value!r}: must be true or false")
    return value
