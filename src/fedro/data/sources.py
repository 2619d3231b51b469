"""The table of data sources, and `make_federation`, which reads ``"femnist(path='…')"``."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from fedro.common.checks import count
from fedro.common.options import Options
from fedro.common.registry import Table
from fedro.common.stages import Stage, parse_stage
from fedro.data.federation import Federation
from fedro.data.partitions import PARTITIONS
from fedro.data.user_data import call_user_function, check_user_function

DEFAULT_CLIENTS = 10  # where neither the data nor the user says how many


@dataclass(frozen=True)
class Source:
    """A data source: a function (clients, seed, *, options) that returns a federation.

    Attributes:
        name: Its name in a configuration.
        function: The function.
        has_owners: Whether its examples belong to clients. Otherwise the function returns a single
            client, whose examples are distributed by a partition.
    """

    name: str
    function: Callable[..., Federation]
    has_owners: bool

    @property
    def summary(self) -> str:
        """The first line of the documentation."""
        return (inspect.getdoc(self.function) or "").partition("\n")[0]

    @property
    def options(self) -> Options:
        """The options, by name."""
        return Options(self.name, self.function)


SOURCES: Table[Source] = Table("data source")


def register(*, has_owners: bool) -> Callable[[Callable[..., Federation]], Source]:
    """Put a function into the table of sources under its own name."""

    def add(function: Callable[..., Federation]) -> Source:
        name = function.__name__
        SOURCES[name] = source = Source(name, function, has_owners)
        return source

    return add


def make_federation(
    text: str, *, clients: int | None = None, partition: str | None = None, seed: int = 0
) -> Federation:
    """Make the federation that a text names.

    Args:
        text: A source with its options, such as ``"digits"``, ``"femnist(path='data')"`` or
            ``"my_module:my_function(size=80)"``. An unknown name raises an
            error that lists the sources.
        clients: The number of clients. If the examples belong to clients (femnist, folder,
            synthetic, your own), the first so many are taken, by default all of them. Otherwise
            (digits, cifar10) the examples are distributed to so many clients, by default 10.
        partition: Who gets which examples: ``"owner"``, ``"iid"``, ``"dirichlet(alpha=0.5)"`` or
            ``"shards(per_client=2)"``. The default is ``"owner"`` where the examples belong to
            clients and ``"iid"`` otherwise. Any partition but ``"owner"`` pools all examples and
            distributes them anew.
        seed: Decides every random choice.

    Returns:
        The federation.

    Raises:
        ValueError: A name, an option or the data is wrong; the message says how to correct it.
        FileNotFoundError: The data is not there; the message says how to get it.

    Example:
        >>> federation = make_federation("digits", clients=20, partition="shards(per_client=2)")
        >>> federation.clients, federation.classes, federation.partition
        (20, 10, 'shards(per_client=2)')
    """
    clients = None if clients is None else count("clients", clients, 1)
    seed = count("seed", seed, 0)
    stage, chosen, has_owners = _parse(text, partition)
    federation = _call_source(stage, clients if chosen.name == "owner" else None, seed)
    number = clients or (federation.clients if has_owners else DEFAULT_CLIENTS)
    partitioned = PARTITIONS[chosen.name](federation, number, seed, **chosen.options)
    return replace(partitioned, partition=str(chosen))


def check_source(text: str, partition: str | None = None) -> None:
    """Check the names and options of a source and a partition without reading any data.

    Raises:
        ValueError: A name or an option is unknown or not allowed, a function of the user's own
            cannot be imported or called so, or the partition does not suit the source.
    """
    stage, _, _ = _parse(text, partition)
    if ":" in stage.name:
        check_user_function(stage.name, stage.options)
    else:
        SOURCES[stage.name].options.check(stage.options)


def parse_partition(text: str) -> Stage:
    """Parse the name and the options of a partition, or raise."""
    stage = parse_stage("partition", text)
    Options(stage.name, PARTITIONS[stage.name]).check(stage.options)
    return stage


def _parse(text: str, partition: str | None) -> tuple[Stage, Stage, bool]:
    """Parse a source and its partition, and tell whether its examples belong to clients."""
    stage = parse_stage("data source", text)
    has_owners = ":" in stage.name or SOURCES[stage.name].has_owners
    chosen = parse_partition(partition or ("owner" if has_owners else "iid"))
    if chosen.name == "owner" and not has_owners:
        others = ", ".join(name for name in PARTITIONS if name != "owner")
        raise ValueError(
            f"partition='owner': the samples of {stage.name} belong to nobody; "
            f"choose one of {others}"
        )
    return stage, chosen, has_owners


def _call_source(stage: Stage, clients: int | None, seed: int) -> Federation:
    given: dict[str, Any] = stage.options
    if ":" in stage.name:
        return call_user_function(stage.name, given, clients, seed)
    source = SOURCES[stage.name]
    source.options.check(given)
    return source.function(clients, seed, **given)
