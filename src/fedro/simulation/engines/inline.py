"""One client after the other, in this process: the plain reference, and the way on a GPU."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import TracebackType
from typing import Self

import torch
from torch import Tensor

from fedro.common.streams import seeded
from fedro.models import FlatModel
from fedro.simulation.client import evaluate, local_update
from fedro.simulation.engines import Job, Setting, matrix


class Inline:
    """The engine without processes."""

    kind = "inline"

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.flat = FlatModel(setting.build(), setting.device)
        self.updates = matrix(setting.rows, self.flat.width, setting.device)

    def train(self, model: Tensor, jobs: Sequence[Job], lr: float) -> dict[int, float]:
        """Run all jobs from this model; their mean losses, by row."""
        return {job.row: self._train(model, job, lr) for job in jobs}

    def _train(self, model: Tensor, job: Job, lr: float) -> float:
        x, y = (part.to(self.setting.device) for part in job.batches())
        with seeded(job.seed):
            recipe, out = self.setting.recipe, self.updates[job.row]
            return local_update(self.flat, model, x, y, recipe, lr, out, job.restraint)

    def evaluate(self, model: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """The loss (m,) of each example, and whether it is right (m,)."""
        x, y = (part.to(self.setting.device) for part in (x, y))
        losses, right = evaluate(self.flat, model, x, y, self.setting.recipe)
        return losses.cpu(), right.cpu()

    def working(self) -> AbstractContextManager[None]:
        """With as many threads as PyTorch has."""
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
    """Compute with one thread for a while."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
