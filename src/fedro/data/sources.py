"""The table of data sources, and the one function that reads ``"femnist(path='…')"``."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from fedro.common.checks import count
from fedro.common.registry import Stage, Table, check_options, options_of, parse_stage
from fedro.data.federation import Federation
from fedro.data.own import call_own
from fedro.data.partitions import PARTITIONS

PARTS = 10  # clients, where neither the data nor the user says how many


@dataclass(frozen=True)
class Source:
    """Where data comes from: function(clients, seed, *, options) gives a federation."""

    name: str
    function: Callable[..., Federation]
    owners: bool  # its samples belong to clients; else it gives one client, to be dealt to many

    @property
    def summary(self) -> str:
        """What it is, in a line."""
        return (inspect.getdoc(self.function) or "").partition("\n")[0]

    @property
    def options(self) -> dict[str, inspect.Parameter]:
        """What can be set, by name."""
        return options_of(self.function)


SOURCES: Table[Source] = Table("data source")


def register(*, owners: bool) -> Callable[[Callable[..., Federation]], Source]:
    """Put a function into the table under its own name."""

    def enter(function: Callable[..., Federation]) -> Source:
        name = function.__name__
        SOURCES[name] = source = Source(name, function, owners)
        return source

    return enter


def make_federation(
    text: str, *, clients: int | None = None, partition: str | None = None, seed: int = 0
) -> Federation:
    """The federation that a text names: ``make_federation("digits", clients=20)``.

    Where samples belong to someone (femnist, folder, synthetic, your own), the clients are the
    first ``clients`` owners, by default all; another partition pools all samples and deals them
    again. Other data (digits, cifar10) is dealt to ``clients`` parts, by default 10, iid.
    """
    stage = parse_stage("data source", text)
    clients = None if clients is None else count("clients", clients, 1)
    seed = count("seed", seed, 0)
    owners = ":" in stage.name or SOURCES[stage.name].owners
    deal = _partition(partition or ("owner" if owners else "iid"), stage.name, owners)
    kept = deal.name == "owner"
    federation = _open(stage, clients if kept else None, seed)
    parts = clients or (federation.clients if owners else PARTS)
    dealt = PARTITIONS[deal.name](federation, parts, seed, **deal.options)
    return replace(dealt, partition=str(deal))


def _partition(text: str, source: str, owners: bool) -> Stage:
    deal = parse_stage("partition", text)
    check_options(deal.name, PARTITIONS[deal.name], deal.options)
    if deal.name == "owner" and not owners:
        others = ", ".join(name for name in PARTITIONS if name != "owner")
        raise ValueError(
            f"partition='owner': the samples of {source} belong to nobody; choose one of {others}"
        )
    return deal


def _open(stage: Stage, clients: int | None, seed: int) -> Federation:
    given: dict[str, Any] = stage.options
    if ":" in stage.name:
        return call_own(stage.name, given, clients, seed)
    source = SOURCES[stage.name]
    check_options(source.name, source.function, given)
    return source.function(clients, seed, **given)
