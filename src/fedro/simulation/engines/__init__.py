"""For each client: the one place where the speed of local training lives.

    with make_engine("auto", setting) as engine:
        losses = engine.train(model, jobs, lr)           # fills rows of engine.updates
        losses, right = engine.evaluate(model, x, y)

Four kinds do the same work: `workers` (processes of one thread each), `batched` (small models,
many clients at once), `inline` (one client after the other in this process: the plain way, and
what a GPU uses) and `flower` (messages to nodes of Flower's, here or elsewhere). A job carries its
batches and its seed, so its result depends on nothing else.
"""

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib.util import find_spec
from types import TracebackType
from typing import NamedTuple, Protocol, Self

import torch
from torch import Tensor, nn

from fedro.common.registry import unknown
from fedro.models import FlatModel
from fedro.simulation.client import Recipe

KINDS = ("auto", "workers", "batched", "inline", "flower")
ELSEWHERE = ("workers", "flower")  # in other processes, which build the model by its name
QUIET = (  # what Flower and Ray read when they are imported: a run tells nobody of itself
    *("FLWR_TELEMETRY_ENABLED", "RAY_USAGE_STATS_ENABLED"),
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO",  # and warns of nothing
)
SMALL = 100_000  # parameters up to which computing many clients at once is faster
GROUP = 32  # clients computed at once


class Job(NamedTuple):
    """The local training of one client: where its update goes, its batches, its dice."""

    row: int
    batches: Callable[[], tuple[Tensor, Tensor]]  # x (K, B, …) and y (K, B), drawn when asked
    seed: int
    restraint: float = 0.0  # an attacker's: see `local_update`


@dataclass(frozen=True)
class Setting:
    """What an engine needs to know about the model, the data and the machine."""

    build: Callable[[], nn.Module]  # the same module each time
    recipe: Recipe
    rows: int  # of the matrix of updates
    steps: int  # K
    batch: int  # B
    example: tuple[Tensor, Tensor]  # one x and one y, for their shapes and types
    model: str | None = None  # what other processes can build: text, shape, classes, seed
    shape: tuple[int, ...] = ()
    classes: int = 0
    seed: int = 0
    device: str = "cpu"
    workers: int | None = None  # processes; as many as there are cores


class Engine(Protocol):
    """Trains jobs into the rows of `updates`, and evaluates."""

    kind: str
    updates: Tensor  # (rows, width)

    def train(self, model: Tensor, jobs: Sequence[Job], lr: float) -> dict[int, float]:
        """Run all jobs from this model; their mean losses, by row."""

    def evaluate(self, model: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """The loss (m,) of each example, and whether it is right (m,)."""

    def working(self) -> AbstractContextManager[None]:
        """How a round is best worked on: with threads, or, where all is small, without."""

    def __enter__(self) -> Self:
        """Make ready."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop what was started."""


def choose(kind: str, flat: FlatModel, device: str, by_name: bool, *, batched: bool = True) -> str:
    """The kind that `auto` means: it depends on the model and the device, never on the cores."""
    if kind not in KINDS:
        raise ValueError(unknown("engine", kind, list(KINDS)))
    if kind == "batched" and not flat.batchable:
        raise ValueError(
            "engine='batched' cannot train a model with BatchNorm, dropout or other buffers: "
            "use 'workers' or 'inline'"
        )
    if kind in ELSEWHERE and not by_name:
        raise ValueError(
            f"engine={kind!r} needs a model that other processes can build, by its name "
            "('my_module:Net'), not an object: use 'inline', or name it"
        )
    if kind in ELSEWHERE and device != "cpu":
        raise ValueError(
            f"engine={kind!r} trains on the CPU, not on {device}: use 'inline', or device='cpu'"
        )
    if kind == "flower" and not all(map(find_spec, ("flwr", "ray"))):
        raise ValueError("engine='flower' needs Flower and Ray: pip install 'fedro[flower]'")
    if kind != "auto":
        return kind
    if batched and flat.batchable and flat.width <= SMALL:
        return "batched"
    return "workers" if device == "cpu" and by_name else "inline"


def why_not_batched(setting: Setting) -> str | None:
    """Why many clients of this model cannot be computed at once, found by trying; or None."""
    from fedro.simulation.engines.batched import Batched

    x, y = (part.expand(setting.batch, *part.shape).unsqueeze(0) for part in setting.example)
    trial = Batched(setting)
    try:
        trial.train(trial.flat.vector.clone(), [Job(0, lambda: (x, y), 0)], lr=1e-3)
    except Exception as error:
        return f"{type(error).__name__}: {error}".partition("\n")[0]
    return "it changes buffers or frozen parameters as it runs" if trial.flat.changed else None


def make_engine(kind: str, setting: Setting) -> Engine:
    """An engine of a kind that `choose` has chosen."""
    if kind == "workers":
        from fedro.simulation.engines.workers import Workers

        return Workers(setting)
    if kind == "batched":
        from fedro.simulation.engines.batched import Batched

        return Batched(setting)
    if kind == "flower":
        for name in QUIET:
            os.environ.setdefault(name, "0")
        from fedro.simulation.engines.flower import Flower

        return Flower(setting)
    from fedro.simulation.engines.inline import Inline

    return Inline(setting)


def matrix(rows: int, width: int, device: str) -> Tensor:
    """Room for the updates (rows, width), each row beginning on a line of the cache."""
    return torch.zeros(rows, padded(width), device=device)[:, :width]


def padded(width: int) -> int:
    """The width rounded up to 64 bytes of float32."""
    return -(-width // 16) * 16
