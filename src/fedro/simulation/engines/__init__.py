"""Engines: the code that trains the sampled clients of a simulation, and sets its speed.

    with make_engine("batched", config) as engine:
        losses = engine.train(model, jobs, lr)           # fills rows of engine.updates
        losses, correct = engine.evaluate(model, x, y)

There are four kinds, which give the same results. `inline` trains one client after the other in
this process; it is the reference, and the engine for GPUs. `batched` trains many clients of a small
model at once. `workers` uses processes with one thread each. `ray` uses the processes of Ray, here
or on other machines. A job carries its batches and its seed, so its result depends on nothing else.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib.util import find_spec
from types import TracebackType
from typing import Any, NamedTuple, Protocol, Self

import torch
from torch import Tensor, nn

from fedro.common.registry import unknown
from fedro.common.user_code import UserCodeError
from fedro.models import FlatModel, build
from fedro.simulation.client import LocalTraining

KINDS = ("auto", "workers", "batched", "inline", "ray")
OTHER_PROCESS_KINDS = ("workers", "ray")  # their processes build the model by its name
MAX_BATCHED_PARAMETERS = 100_000  # up to this size, training many clients at once is faster
GROUP_SIZE = 32  # clients that the batched engine trains at once
MIN_EXAMPLES_PER_EVALUATION = 256  # that a process evaluates at once


class Job(NamedTuple):
    """The local training of one client: the row for its update, its batches and its seed."""

    row: int
    batches: Callable[[], tuple[Tensor, Tensor]]  # draws x (K, B, …) and y (K, B) when called
    seed: int
    restraint: float = 0.0  # only attacks set it, see `local_update`


@dataclass(frozen=True)
class EngineConfig:
    """What an engine needs to know about the model, the data and the machine."""

    build: Callable[[], nn.Module]  # makes the same module each time
    training: LocalTraining
    rows: int  # of the matrix of updates
    steps: int  # K
    batch: int  # B
    example: tuple[Tensor, Tensor]  # one x and one y, for their shapes and types
    model: str | None = None  # with shape, classes and seed: how other processes build the model
    shape: tuple[int, ...] = ()
    classes: int = 0
    seed: int = 0
    device: str = "cpu"
    workers: int | None = None  # number of processes; None for one per core

    @property
    def examples_per_evaluation(self) -> int:
        """How many examples another process evaluates at once; the bits may depend on it."""
        return max(self.steps * self.batch, MIN_EXAMPLES_PER_EVALUATION)

    def describe(self) -> dict[str, Any]:
        """The model and its training as JSON values; `build_described` reads them elsewhere."""
        model = {
            "text": self.model,
            "shape": self.shape,
            "classes": self.classes,
            "seed": self.seed,
        }
        arrays = {key: getattr(self.training, key).tolist() for key in ("shift", "scale")}
        return {"model": model, "training": {**self.training._asdict(), **arrays}}


def build_described(description: dict[str, Any]) -> tuple[FlatModel, LocalTraining]:
    """The model and the training that `EngineConfig.describe` described."""
    values = dict(description["training"])
    for key in ("shift", "scale"):
        values[key] = torch.tensor(values[key])
    model = description["model"]
    return FlatModel(build(**model), name=model["text"]), LocalTraining(**values)


class Engine(Protocol):
    """Trains clients into the rows of `updates`, and evaluates models."""

    kind: str
    updates: Tensor  # (rows, width)

    def train(self, model: Tensor, jobs: Sequence[Job], lr: float) -> dict[int, float]:
        """Run all jobs from this model and return their mean losses by row."""

    def evaluate(self, model: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """The loss of each example (m,), and whether it is classified correctly (m,)."""

    def threads(self) -> AbstractContextManager[None]:
        """Context in which a round runs: one thread for small models, all threads otherwise."""

    def __enter__(self) -> Self:
        """Start the engine."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop all processes that the engine has started."""


def choose_engine(
    kind: str, flat: FlatModel, device: str, by_name: bool, *, batched: bool = True
) -> str:
    """Check a kind of engine, and replace `auto` by a choice that fits the model and the device.

    The choice never depends on the number of cores, so that results do not either. `by_name` says
    whether other processes can build the model.
    """
    if kind not in KINDS:
        raise ValueError(unknown("engine", kind, list(KINDS)))
    if kind == "batched" and not flat.batchable:
        raise ValueError(
            "engine='batched' cannot train a model with BatchNorm, dropout or other buffers: "
            "use 'workers' or 'inline'"
        )
    if kind in OTHER_PROCESS_KINDS and not by_name:
        raise ValueError(
            f"engine={kind!r} needs a model that other processes can build by its name "
            "('my_module:Net'), not an object: use engine='inline', or name the model"
        )
    if kind in OTHER_PROCESS_KINDS and device != "cpu":
        raise ValueError(
            f"engine={kind!r} trains on the CPU, not on {device}: use engine='inline', or "
            "device='cpu'"
        )
    if kind == "ray" and find_spec("ray") is None:
        raise ValueError("engine='ray' needs Ray: pip install 'fedro[ray]'")
    if kind != "auto":
        return kind
    if batched and flat.batchable and flat.width <= MAX_BATCHED_PARAMETERS:
        return "batched"
    return "workers" if device == "cpu" and by_name else "inline"


def why_not_batched(config: EngineConfig) -> str | None:
    """Try to train one client in a batch; the reason why it fails, or None if it works."""
    from fedro.simulation.engines.batched import BatchedEngine

    x, y = (part.expand(config.batch, *part.shape).unsqueeze(0) for part in config.example)
    engine = BatchedEngine(config)
    try:
        engine.train(engine.flat.vector.clone(), [Job(0, lambda: (x, y), 0)], lr=1e-3)
    except UserCodeError as error:  # what vmap cannot do; real mistakes fail in a trial step before
        return error.short
    except Exception as error:
        return f"{type(error).__name__}: {error}".partition("\n")[0]
    if engine.flat.changed:
        return "it changes buffers or frozen parameters in its forward pass"
    return None


def make_engine(kind: str, config: EngineConfig) -> Engine:
    """Make an engine of a kind that `choose_engine` has returned."""
    if kind == "workers":
        from fedro.simulation.engines.workers import WorkersEngine

        return WorkersEngine(config)
    if kind == "batched":
        from fedro.simulation.engines.batched import BatchedEngine

        return BatchedEngine(config)
    if kind == "ray":
        from fedro.simulation.engines.ray_session import prepare_import

        prepare_import()
        from fedro.simulation.engines.ray_engine import RayEngine

        return RayEngine(config)
    from fedro.simulation.engines.inline import InlineEngine

    return InlineEngine(config)


def allocate_updates(rows: int, width: int, device: str) -> Tensor:
    """A zeroed matrix of updates (rows, width) in which each row starts on a cache line."""
    return torch.zeros(rows, padded_width(width), device=device)[:, :width]


def padded_width(width: int) -> int:
    """The width rounded up to a multiple of 64 bytes of float32."""
    return -(-width // 16) * 16
