"""The engine that trains clients one by one in this process: the reference, and for GPUs."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import TracebackType
from typing import Self

import torch
from torch import Tensor

from fedro.common.streams import seeded
from fedro.models import FlatModel
from fedro.simulation.client import evaluate, local_update
from fedro.simulation.engines import EngineConfig, Job, allocate_updates


class InlineEngine:
    """Trains one client after the other in this process."""

    kind = "inline"

    def __init__(self, config: EngineConfig) -> None:
        self.config = config
        self.flat = FlatModel(config.build(), config.device, config.model)
        self.updates = allocate_updates(config.rows, self.flat.width, config.device)

    def train(self, model: Tensor, jobs: Sequence[Job], lr: float) -> dict[int, float]:
        """Run all jobs from this model and return their mean losses by row."""
        return {job.row: self._train(model, job, lr) for job in jobs}

    def _train(self, model: Tensor, job: Job, lr: float) -> float:
        x, y = (part.to(self.config.device) for part in job.batches())
        training, out = self.config.training, self.updates[job.row]
        with seeded(job.seed):
            return local_update(self.flat, model, x, y, training, lr, out, job.restraint)

    def evaluate(self, model: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """The loss of each example (m,), and whether it is classified correctly (m,)."""
        x, y = (part.to(self.config.device) for part in (x, y))
        losses, correct = evaluate(self.flat, model, x, y, self.config.training)
        return losses.cpu(), correct.cpu()

    def threads(self) -> AbstractContextManager[None]:
        """Context with all of PyTorch's threads."""
        return nullcontext()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        return None


@contextmanager
def one_thread() -> Iterator[None]:
    """Limit PyTorch to one thread within the block."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
