"""The engine with worker processes of one thread each, for models that are worth a process.

Two processes with one thread each train two clients faster than two threads train one. Each worker
writes its client's update into a row of shared memory. The engine replaces a worker that dies and
repeats its job, which gives the same bits.
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

from fedro.common.subprocesses import JsonSubprocess
from fedro.common.user_code import UserCodeError
from fedro.models import FlatModel
from fedro.simulation.engines import EngineConfig, Job, padded_width
from fedro.simulation.engines.shared_memory import SharedTensor, create_memory, map_tensors

TASKS_PER_WORKER = 2  # while a worker computes one, the engine prepares the next
MAX_DEATHS_PER_TASK = 3
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "MALLOC_MMAP_THRESHOLD_": str(1 << 25),  # glibc keeps the memory of gradients between steps
    "MALLOC_TRIM_THRESHOLD_": str(1 << 30),
}


class WorkerError(ChildProcessError):
    """A job that no worker could finish."""


class Task:
    """One request to a worker: a job, or the evaluation of some examples.

    `fill` writes the inputs into a slot of the shared memory and returns the request. `finish`
    receives the slot and the worker's answer.
    """

    def __init__(self, fill: Callable[[int], dict[str, Any]], finish: Callable[[int, Any], None]):
        self.fill, self.finish = fill, finish
        self.deaths = 0


class Worker(JsonSubprocess):
    """A worker process and its unanswered tasks, by slot."""

    def __init__(self, greeting: dict[str, Any]) -> None:
        module = "fedro.simulation.engines.worker_process"
        super().__init__(module, ENVIRONMENT, inherit=[greeting["memory"]])
        self.pending: dict[int, Task] = {}
        self.send(greeting)


class WorkersEngine:
    """Trains and evaluates in worker processes."""

    kind = "workers"

    def __init__(self, config: EngineConfig) -> None:
        if config.model is None:
            raise ValueError("worker processes need a model by name")
        self.config = config
        self.number = config.workers or available_cores()
        width = FlatModel(config.build()).width
        slots = TASKS_PER_WORKER * self.number
        self.examples_per_slot = config.examples_per_evaluation
        inputs = (slots, self.examples_per_slot)
        x, y = config.example
        self.layout = [
            SharedTensor("updates", "float32", (config.rows, padded_width(width))),
            SharedTensor("model", "float32", (width,)),
            SharedTensor("x", _dtype_name(x), (*inputs, *x.shape)),
            SharedTensor("y", _dtype_name(y), (*inputs, *y.shape)),
            SharedTensor("losses", "float32", inputs),
            SharedTensor("correct", "bool", inputs),
        ]
        self.descriptor = create_memory(self.layout)
        self.memory = map_tensors(self.descriptor, self.layout)
        self.updates = self.memory["updates"][:, :width]
        self.free_slots = deque(range(slots))
        self.selector = selectors.DefaultSelector()
        self.workers: list[Worker] = []

    def threads(self) -> AbstractContextManager[None]:
        """Context with all of PyTorch's threads, which this process uses while workers wait."""
        return nullcontext()

    def __enter__(self) -> Self:
        try:
            for _ in range(self.number):
                self._start_worker()
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

    def _start_worker(self) -> None:
        worker = Worker(
            {
                "path": sys.path,
                "memory": self.descriptor,
                "layout": self.layout,
                "steps": self.config.steps,
                "batch": self.config.batch,
                **self.config.describe(),
            }
        )
        self.workers.append(worker)
        self.selector.register(worker.output, selectors.EVENT_READ, worker)

    def train(self, model: Tensor, jobs: Sequence[Job], lr: float) -> dict[int, float]:
        """Run all jobs from this model and return their mean losses by row."""
        self.memory["model"].copy_(model)
        losses: dict[int, float] = {}

        def make_task(job: Job) -> Task:
            def fill(slot: int) -> dict[str, Any]:
                x, y = job.batches()
                self.memory["x"][slot, : x.shape[0] * x.shape[1]] = x.flatten(0, 1)
                self.memory["y"][slot, : y.shape[0] * y.shape[1]] = y.flatten(0, 1)
                return {"row": job.row, "lr": lr, "seed": job.seed, "restraint": job.restraint}

            def finish(slot: int, answer: Any) -> None:
                losses[job.row] = answer["loss"]

            return Task(fill, finish)

        self._run(map(make_task, jobs))
        return losses

    def evaluate(self, model: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """The loss of each example (m,), and whether it is classified correctly (m,)."""
        self.memory["model"].copy_(model)
        losses, correct = torch.empty(len(x)), torch.empty(len(x), dtype=torch.bool)

        def make_task(start: int) -> Task:
            part = slice(start, min(start + self.examples_per_slot, len(x)))
            size = part.stop - part.start

            def fill(slot: int) -> dict[str, Any]:
                self.memory["x"][slot, :size] = x[part]
                self.memory["y"][slot, :size] = y[part]
                return {"count": size}

            def finish(slot: int, answer: Any) -> None:
                losses[part] = self.memory["losses"][slot, :size]
                correct[part] = self.memory["correct"][slot, :size]

            return Task(fill, finish)

        self._run(map(make_task, range(0, len(x), self.examples_per_slot)))
        return losses, correct

    def _run(self, tasks: Iterable[Task]) -> None:
        """Give all tasks to the workers and wait for all answers."""
        waiting = deque(tasks)
        while waiting or any(worker.pending for worker in self.workers):
            self._assign(waiting)
            for key, _ in self.selector.select(timeout=60):
                worker: Worker = key.data
                answers = worker.receive()
                if answers is None:
                    waiting.extendleft(reversed(self._replace(worker)))
                    continue
                for answer in answers:
                    self._finish(worker, answer)

    def _assign(self, waiting: deque[Task]) -> None:
        """Give each worker a first task before any worker gets a second one."""
        for pending in range(TASKS_PER_WORKER):
            for worker in self.workers:
                if waiting and len(worker.pending) == pending:
                    slot, task = self.free_slots.popleft(), waiting.popleft()
                    worker.pending[slot] = task
                    worker.send({"slot": slot, **task.fill(slot)})

    def _finish(self, worker: Worker, answer: dict[str, Any]) -> None:
        slot = answer.pop("slot")
        task = worker.pending.pop(slot)
        self.free_slots.append(slot)
        if "user error" in answer:
            raise UserCodeError(**answer["user error"])
        if "error" in answer:
            raise WorkerError(f"a worker process failed: {answer['error']}\n{answer['trace']}")
        task.finish(slot, answer)

    def _replace(self, worker: Worker) -> list[Task]:
        """Replace a dead worker and return its unfinished tasks."""
        self.selector.unregister(worker.output)
        self.workers.remove(worker)
        worker.stop()
        tasks = list(worker.pending.values())
        self.free_slots.extend(worker.pending)
        for task in tasks[:1]:  # the worker had not started the others
            task.deaths += 1
            if task.deaths == MAX_DEATHS_PER_TASK:
                raise WorkerError(
                    f"{MAX_DEATHS_PER_TASK} worker processes died on the same job, the last one "
                    f"with exit code {worker.process.returncode} (-9 means killed, often because "
                    "memory ran out)"
                )
        self._start_worker()
        return tasks


def available_cores() -> int:
    """The number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1  # not Linux


def _dtype_name(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
