"""`Federation`: which client holds which examples; they are read only when asked for."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple, Protocol, TypedDict

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedro.common.checks import count
from fedro.common.text import counted
from fedro.common.user_code import PACKAGE_CODE, UserCode, is_users

Array = NDArray[Any]
Scaling = float | Tensor  # a number, or one for each channel: (C, 1, 1)


class Examples(NamedTuple):
    """Inputs with their labels or targets, one row for each example.

    Attributes:
        x: The inputs (m, …): uint8 images or float32.
        y: The labels (m,) of int64, or the targets (m, …) of float32.

    Example:
        >>> examples = Examples(torch.zeros(5, 3), torch.zeros(5, dtype=torch.int64))
        >>> len(examples.y)
        5
    """

    x: Tensor
    y: Tensor


class LazyExamples(Protocol):
    """The training or test data of a client.

    Size and shape are known at once; the arrays are read when `arrays` or `labels` is called.
    Implement this protocol to bring data that is too large for memory.
    """

    def __len__(self) -> int: ...

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one input."""
        ...

    def arrays(self) -> tuple[Array, Array]:
        """Return the inputs and the labels or targets, as new arrays that the caller may change."""
        ...

    def labels(self) -> Array:
        """Return only the labels or targets."""
        ...


def user_code_of(part: LazyExamples) -> UserCode:
    """The context in which to read examples, whose class may be the user's."""
    if not is_users(type(part)):
        return PACKAGE_CODE
    return UserCode(f"data class {type(part).__name__}", getattr(type(part), "arrays", None))


@dataclass(frozen=True, eq=False)
class ExampleRows:
    """Some rows of two arrays that all clients share; the arrays may be mapped from a file."""

    x: Array
    y: Array
    index: Array

    def __len__(self) -> int:
        return len(self.index)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one input."""
        return tuple(self.x.shape[1:])

    def arrays(self) -> tuple[Array, Array]:
        """Return the rows as new arrays."""
        return self.x[self.index], self.y[self.index]

    def labels(self) -> Array:
        """Return the labels or targets of the rows."""
        labels: Array = self.y[self.index]
        return labels


class Problem(TypedDict):
    """The constants in the paper's theorems, for clients with the loss f_i(w) = ½ E‖w − s‖²."""

    sigma: float  # E‖s − center_i‖² = σ² for every client
    zeta: float  # the mean of ‖center_i − optimum‖² over these clients is ζ²
    L: float  # smoothness
    optimum: Tensor  # (dim,)
    centers: Tensor  # (clients, dim)


def spread(centers: Tensor) -> float:
    """Compute ζ, the heterogeneity of some clients of the synthetic problem.

    Args:
        centers: The clients' centers (clients, dim), as in ``problem["centers"][honest]``.

    Returns:
        √ of the mean of ‖center_i − mean of the centers‖².

    Example:
        >>> spread(torch.tensor([[0.0], [2.0]]))
        1.0
    """
    exact = centers.double()
    return float((exact - exact.mean(0)).square().sum(1).mean().sqrt())


def least_squares(centers: Tensor, sigma: float, zeta: float | None = None) -> Problem:
    """Make the problem of clients with these centers; ζ is computed from them unless given."""
    optimum = centers.double().mean(0).to(centers.dtype)
    zeta = spread(centers) if zeta is None else zeta
    return Problem(sigma=sigma, zeta=zeta, L=1.0, optimum=optimum, centers=centers)


@dataclass(frozen=True, eq=False)
class Federation:
    """The training and test data of all clients.

    Usually made by `make_federation` or `from_clients`.

    Attributes:
        name: What the data is called in tables and reports.
        splits: For each client its training and its test data.
        classes: The number of classes; 0 for regression.
        partition: How the examples were distributed to the clients.
        shift: Subtracted from uint8 images before training.
        scale: What uint8 images are divided by after that; float32 data is used as it is.
        owners: The clients' names, if they have any.
        problem: The constants of the synthetic problem; None for other data.

    Example:
        >>> from fedro.data import make_federation
        >>> federation = make_federation("synthetic(dim=3, samples=8)", clients=4)
        >>> federation.clients, federation.train(0).x.shape
        (4, torch.Size([8, 3]))
    """

    name: str
    splits: Sequence[tuple[LazyExamples, LazyExamples]] = field(repr=False)
    classes: int
    partition: str = "owner"
    shift: Scaling = field(default=0.0, repr=False)
    scale: Scaling = field(default=255.0, repr=False)
    owners: Sequence[str] = field(default=(), repr=False)
    problem: Problem | None = field(default=None, repr=False)

    @property
    def clients(self) -> int:
        """The number of clients."""
        return len(self.splits)

    @property
    def task(self) -> str:
        """``"classify"`` (labels) or ``"regress"`` (targets)."""
        return "classify" if self.classes else "regress"

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one input."""
        part = self.splits[0][0]
        with user_code_of(part):
            return part.shape

    def train(self, client: int) -> Examples:
        """Read the training data of a client, as new tensors that the caller may change."""
        return self._examples(client, 0)

    def test(self, client: int) -> Examples:
        """Read the test data of a client, as new tensors; there may be none."""
        return self._examples(client, 1)

    def _examples(self, client: int, which: int) -> Examples:
        client = count("client", client, 0, self.clients - 1, f"of {self.clients} clients")
        part = self.splits[client][which]
        with user_code_of(part):
            x, y = part.arrays()
            return Examples(torch.from_numpy(x), torch.from_numpy(y))

    @cached_property
    def sizes(self) -> Array:
        """The number of training examples of each client."""
        return _read_only([_length(train) for train, _ in self.splits])

    @cached_property
    def test_sizes(self) -> Array:
        """The number of test examples of each client."""
        return _read_only([_length(test) for _, test in self.splits])

    @cached_property
    def classes_per_client(self) -> Array:
        """The number of classes in each client's training data; zeros for regression."""
        if not self.classes:
            return _read_only([0] * self.clients)
        return _read_only([len(np.unique(_labels(train))) for train, _ in self.splits])

    @cached_property
    def label_counts(self) -> Array:
        """The number of training examples of each class: (clients, classes)."""
        if not self.classes:
            return np.zeros((self.clients, 0), dtype=np.int64)
        return _read_only(
            [np.bincount(_labels(train), minlength=self.classes) for train, _ in self.splits]
        )

    def first(self, clients: int) -> "Federation":
        """Return the federation of the first clients only.

        Raises:
            ValueError: There are not so many clients.
        """
        clients = count("clients", clients, 1)
        if clients > self.clients:
            raise ValueError(
                f"{self.name} has {counted(self.clients, 'client')}, not the {clients} asked for: "
                "ask for fewer, or distribute its samples anew, as with partition='iid'"
            )
        if clients == self.clients:
            return self
        problem = self.problem and least_squares(
            self.problem["centers"][:clients], self.problem["sigma"]
        )
        return replace(
            self, splits=self.splits[:clients], owners=self.owners[:clients], problem=problem
        )

    def description(self) -> str:
        """Say the task, the number of classes and the number of examples in one line."""
        return describe_data(self.classes, self.sizes.tolist(), self.test_sizes.tolist())

    def summary(self) -> str:
        """Format a small table: how many examples and classes the clients have."""
        shape = "×".join(map(str, self.shape)) or "1"
        lines = [
            f"{self.name}: {counted(self.clients, 'client')} ({self.partition}), "
            f"{f'{self.classes} classes' if self.classes else 'regression'}, "
            f"examples of shape {shape}",
            f"{'each client':<17}{'min':>9}{'median':>9}{'max':>9}{'in all':>9}",
            _summary_line("training samples", self.sizes),
            _summary_line("test samples", self.test_sizes),
        ]
        if self.classes:
            lines.append(_summary_line("classes", self.classes_per_client, total=self.classes))
        return "\n".join(lines)


def _length(part: LazyExamples) -> int:
    with user_code_of(part):
        return len(part)


def _labels(part: LazyExamples) -> Array:
    with user_code_of(part):
        return part.labels()


def describe_data(classes: int, sizes: Sequence[int], test_sizes: Sequence[int]) -> str:
    """Describe the data of clients in one line.

    Args:
        classes: The number of classes; 0 for regression.
        sizes: The number of training examples of each client.
        test_sizes: The number of test examples of each client.

    Example:
        >>> describe_data(10, [1200, 800], [100, 100])
        'classification with 10 classes, 2,000 training examples (800 to 1,200 a client) and 200 \
test examples (100 a client)'
    """
    counts = " and ".join(
        f"{sum(numbers):,} {name} {'example' if sum(numbers) == 1 else 'examples'} "
        f"({_range(numbers)} a client)"
        for name, numbers in (("training", sizes), ("test", test_sizes))
    )
    task = (
        f"classification with {counted(classes, 'class', 'classes')}" if classes else "regression"
    )
    return f"{task}, {counts}"


def _range(numbers: Sequence[int]) -> str:
    low, high = min(numbers), max(numbers)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _summary_line(title: str, values: Array, total: int | None = None) -> str:
    numbers = (values.min(), np.median(values), values.max(), total or values.sum())
    return f"{title:<17}" + "".join(f"{number:>9.10g}" for number in numbers)


def _read_only(values: Sequence[Any]) -> Array:
    array = np.array(values, dtype=np.int64)
    array.flags.writeable = False  # computed once and shared
    return array
