"""Clients' data: who holds which samples, read only when asked."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedro.common.checks import count
from fedro.common.text import counted
from fedro.data.problem import Problem, least_squares

Array = NDArray[Any]
Scaling = float | Tensor  # a number, or one for each channel: (C, 1, 1)


class Examples(NamedTuple):
    """Inputs and their labels or targets, one row each."""

    x: Tensor  # (m, …) uint8 images or float32
    y: Tensor  # (m,) int64 labels, or (m, …) float32 targets


class Part(Protocol):
    """A client's training or test data: its size and shape are known, the rest is read later."""

    def __len__(self) -> int: ...

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one example."""
        ...

    def arrays(self) -> tuple[Array, Array]:
        """The inputs and the labels, as fresh arrays that the caller may change."""
        ...

    def labels(self) -> Array:
        """The labels alone."""
        ...


@dataclass(frozen=True, eq=False)
class Rows:
    """Some rows of two arrays that all clients share; the arrays may lie in a file."""

    x: Array
    y: Array
    index: Array

    def __len__(self) -> int:
        return len(self.index)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one example."""
        return tuple(self.x.shape[1:])

    def arrays(self) -> tuple[Array, Array]:
        """The rows, gathered."""
        return self.x[self.index], self.y[self.index]

    def labels(self) -> Array:
        """The labels of the rows."""
        labels: Array = self.y[self.index]
        return labels


@dataclass(frozen=True, eq=False)
class Federation:
    """The data of all clients.

    >>> from fedro.data import make_federation
    >>> federation = make_federation("synthetic(dim=3, samples=8)", clients=4)
    >>> federation.clients, federation.train(0).x.shape
    (4, torch.Size([8, 3]))

    uint8 images are meant to become floats as (x − shift) / scale; float32 data is used as it is.
    """

    name: str
    parts: Sequence[tuple[Part, Part]] = field(repr=False)  # (train, test) of each client
    classes: int  # 0 for regression
    partition: str = "owner"
    shift: Scaling = field(default=0.0, repr=False)
    scale: Scaling = field(default=255.0, repr=False)
    owners: Sequence[str] = field(default=(), repr=False)  # the clients' names, where they have any
    problem: Problem | None = field(default=None, repr=False)

    @property
    def clients(self) -> int:
        """How many clients there are."""
        return len(self.parts)

    @property
    def task(self) -> str:
        """``"classify"`` (labels) or ``"regress"`` (targets)."""
        return "classify" if self.classes else "regress"

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one example."""
        return self.parts[0][0].shape

    def train(self, client: int) -> Examples:
        """What a client trains on: fresh tensors, yours to change."""
        return self._examples(client, 0)

    def test(self, client: int) -> Examples:
        """What a client is tested on; it may be empty."""
        return self._examples(client, 1)

    def _examples(self, client: int, which: int) -> Examples:
        client = count("client", client, 0, self.clients - 1, f"of {self.clients} clients")
        x, y = self.parts[client][which].arrays()
        return Examples(torch.from_numpy(x), torch.from_numpy(y))

    @cached_property
    def sizes(self) -> Array:
        """Training samples of each client."""
        return _fixed([len(train) for train, _ in self.parts])

    @cached_property
    def test_sizes(self) -> Array:
        """Test samples of each client."""
        return _fixed([len(test) for _, test in self.parts])

    @cached_property
    def classes_per_client(self) -> Array:
        """How many classes are in each client's training data; zeros for regression."""
        if not self.classes:
            return _fixed([0] * self.clients)
        return _fixed([len(np.unique(train.labels())) for train, _ in self.parts])

    @cached_property
    def label_counts(self) -> Array:
        """Training samples of each class: (clients, classes)."""
        if not self.classes:
            return np.zeros((self.clients, 0), dtype=np.int64)
        return _fixed(
            [np.bincount(train.labels(), minlength=self.classes) for train, _ in self.parts]
        )

    def first(self, clients: int) -> "Federation":
        """The federation of the first clients only."""
        clients = count("clients", clients, 1)
        if clients > self.clients:
            raise ValueError(
                f"{self.name} has {counted(self.clients, 'client')}, not the {clients} asked for: "
                "ask for fewer, or deal its samples anew, as with partition='iid'"
            )
        if clients == self.clients:
            return self
        known = self.problem and least_squares(
            self.problem["centers"][:clients], self.problem["sigma"]
        )
        return replace(
            self, parts=self.parts[:clients], owners=self.owners[:clients], problem=known
        )

    def summary(self) -> str:
        """Who holds how much, as a small table."""
        shape = "×".join(map(str, self.shape)) or "1"
        lines = [
            f"{self.name}: {counted(self.clients, 'client')} ({self.partition}), "
            f"{f'{self.classes} classes' if self.classes else 'regression'}, "
            f"examples of shape {shape}",
            f"{'each client':<17}{'min':>9}{'median':>9}{'max':>9}{'in all':>9}",
            _line("training samples", self.sizes),
            _line("test samples", self.test_sizes),
        ]
        if self.classes:
            lines.append(_line("classes", self.classes_per_client, total=self.classes))
        return "\n".join(lines)


def _line(title: str, values: Array, total: int | None = None) -> str:
    numbers = (values.min(), np.median(values), values.max(), total or values.sum())
    return f"{title:<17}" + "".join(f"{number:>9.10g}" for number in numbers)


def _fixed(values: Sequence[Any]) -> Array:
    array = np.array(values, dtype=np.int64)
    array.flags.writeable = False  # computed once and shared
    return array


def groups(member: Array, number: int) -> list[Array]:
    """The rows of each of a number of groups, from the group of each row."""
    order = np.argsort(member, kind="stable")
    return np.split(order, np.cumsum(np.bincount(member, minlength=number))[:-1])
