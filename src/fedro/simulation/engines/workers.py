"""Worker processes of one thread each, for models that are worth it.

Two processes with a thread each train two clients faster than two threads train one. Each worker
writes its client's update into its row of shared memory. A worker that dies is replaced and its job
is done again, to the same bits.
"""

import os
import selectors
import sys
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import Any, Self

import torch
from torch import Tensor

from fedro.common.subprocesses import Child
from fedro.models import FlatModel
from fedro.simulation.engines import Job, Setting, padded, shared
from fedro.simulation.engines.portable import described

AHEAD = 2  # orders a worker has at a time: while it does one, the next is made ready
DEATHS = 3  # of workers on the same job, after which the job is given up
EVALUATED = 256  # examples in an order, at least
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "MALLOC_MMAP_THRESHOLD_": str(1 << 25),  # glibc keeps the memory of gradients from step to step
    "MALLOC_TRIM_THRESHOLD_": str(1 << 30),
}


class WorkerError(ChildProcessError):
    """A job that no worker could do."""


class Worker(Child):
    """One process, and the orders it has not answered."""

    def __init__(self, greeting: dict[str, Any]) -> None:
        super().__init__("fedro.simulation.engines.worker", ENVIRONMENT, keep=[greeting["memory"]])
        self.pending: dict[int, Order] = {}
        self.send(greeting)


class Order:
    """Something to do in a slot of the shared memory, and what to do with the answer."""

    def __init__(self, fill: Callable[[int], dict[str, Any]], done: Callable[[int, Any], None]):
        self.fill, self.done = fill, done
        self.deaths = 0


class Workers:
    """The engine with processes."""

    kind = "workers"

    def __init__(self, setting: Setting) -> None:
        if setting.model is None:
            raise ValueError("worker processes need a model by name")
        self.setting = setting
        self.number = setting.workers or cores()
        width = FlatModel(setting.build()).width
        slots = AHEAD * self.number
        self.room = max(setting.steps * setting.batch, EVALUATED)
        x, y = setting.example
        self.parts = [
            shared.Part("updates", "float32", (setting.rows, padded(width))),
            shared.Part("model", "float32", (width,)),
            shared.Part("x", _name(x), (slots, self.room, *x.shape)),
            shared.Part("y", _name(y), (slots, self.room, *y.shape)),
            shared.Part("losses", "float32", (slots, self.room)),
            shared.Part("right", "bool", (slots, self.room)),
        ]
        self.descriptor = shared.create(self.parts)
        self.memory = shared.tensors(self.descriptor, self.parts)
        self.updates = self.memory["updates"][:, :width]
        self.free = deque(range(slots))
        self.selector = selectors.DefaultSelector()
        self.workers: list[Worker] = []

    def working(self) -> AbstractContextManager[None]:
        """With threads, while the workers rest."""
        return nullcontext()

    def __enter__(self) -> Self:
        try:
            for _ in range(self.number):
                self._start()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for worker in self.workers:
            worker.stop()
        self.workers.clear()
        self.selector.close()
        os.close(self.descriptor)

    def _start(self) -> Worker:
        worker = Worker(
            {
                "path": sys.path,
                "memory": self.descriptor,
                "parts": self.parts,
                "steps": self.setting.steps,
                "batch": self.setting.batch,
                **described(self.setting),
            }
        )
        self.workers.append(worker)
        self.selector.register(worker.answers, selectors.EVENT_READ, worker)
        return worker

    def train(self, model: Tensor, jobs: Sequence[Job], lr: float) -> dict[int, float]:
        """Run all jobs from this model; their mean losses, by row."""
        self.memory["model"].copy_(model)
        losses: dict[int, float] = {}

        def order(job: Job) -> Order:
            def fill(slot: int) -> dict[str, Any]:
                x, y = job.batches()
                self.memory["x"][slot, : x.shape[0] * x.shape[1]] = x.flatten(0, 1)
                self.memory["y"][slot, : y.shape[0] * y.shape[1]] = y.flatten(0, 1)
                return {"row": job.row, "lr": lr, "seed": job.seed, "restraint": job.restraint}

            def done(slot: int, answer: Any) -> None:
                losses[job.row] = answer["loss"]

            return Order(fill, done)

        self._carry_out(map(order, jobs))
        return losses

    def evaluate(self, model: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """The loss (m,) of each example, and whether it is right (m,)."""
        self.memory["model"].copy_(model)
        losses, right = torch.empty(len(x)), torch.empty(len(x), dtype=torch.bool)

        def order(start: int) -> Order:
            part = slice(start, min(start + self.room, len(x)))
            size = part.stop - part.start

            def fill(slot: int) -> dict[str, Any]:
                self.memory["x"][slot, :size] = x[part]
                self.memory["y"][slot, :size] = y[part]
                return {"count": size}

            def done(slot: int, answer: Any) -> None:
                losses[part] = self.memory["losses"][slot, :size]
                right[part] = self.memory["right"][slot, :size]

            return Order(fill, done)

        self._carry_out(map(order, range(0, len(x), self.room)))
        return losses, right

    def _carry_out(self, orders: Iterable[Order]) -> None:
        """Give out all orders and wait for all answers."""
        waiting = deque(orders)
        while waiting or any(worker.pending for worker in self.workers):
            self._hand_out(waiting)
            for key, _ in self.selector.select(timeout=60):
                worker: Worker = key.data
                answers = worker.receive()
                if answers is None:
                    waiting.extendleft(reversed(self._bury(worker)))
                    continue
                for answer in answers:
                    self._finish(worker, answer)

    def _hand_out(self, waiting: deque[Order]) -> None:
        for held in range(AHEAD):
            for worker in self.workers:
                if waiting and len(worker.pending) == held:
                    slot, order = self.free.popleft(), waiting.popleft()
                    worker.pending[slot] = order
                    worker.send({"slot": slot, **order.fill(slot)})

    def _finish(self, worker: Worker, answer: dict[str, Any]) -> None:
        slot = answer.pop("slot")
        order = worker.pending.pop(slot)
        self.free.append(slot)
        if "error" in answer:
            raise WorkerError(f"a worker failed: {answer['error']}\n{answer['trace']}")
        order.done(slot, answer)

    def _bury(self, worker: Worker) -> list[Order]:
        """Replace a dead worker; what it has left undone."""
        self.selector.unregister(worker.answers)
        self.workers.remove(worker)
        worker.stop()
        orders = list(worker.pending.values())
        self.free.extend(worker.pending)
        for order in orders[:1]:  # the others were not begun
            order.deaths += 1
            if order.deaths == DEATHS:
                raise WorkerError(
                    f"{DEATHS} worker processes died on the same job, the last one with exit code "
                    f"{worker.process.returncode} (-9: killed, often for want of memory)"
                )
        self._start()
        return orders


def cores() -> int:
    """How many this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1  # not Linux


def _name(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
