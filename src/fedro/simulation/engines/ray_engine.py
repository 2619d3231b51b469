"""The engine that trains every client in a Ray task, on this machine or on a cluster.

A task depends on nothing but its arguments: every machine with the same processor computes the same
bits as the `workers` engine. Ray runs a task again if its process or its machine is lost.
"""

import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import lru_cache
from importlib.metadata import version
from types import TracebackType
from typing import Any, Self, TypeVar

import numpy as np
import ray
import torch
from ray.exceptions import RayError, RayTaskError
from torch import Tensor

from fedro.common.user_code import UserCodeError
from fedro.models import FlatModel
from fedro.simulation.client import LocalTraining, evaluate, local_update
from fedro.simulation.engines import EngineConfig, Job, build_described
from fedro.simulation.engines.inline import InlineEngine
from fedro.simulation.engines.ray_session import ray_session
from fedro.simulation.engines.workers import MAX_DEATHS_PER_TASK, TASKS_PER_WORKER, WorkerError

SECONDS_BETWEEN_CHECKS = 10.0  # of the machines, while no task ends
Item = TypeVar("Item")
task = ray.remote(num_cpus=1, max_retries=MAX_DEATHS_PER_TASK - 1)


class RayEngine(InlineEngine):
    """Trains and evaluates in Ray tasks."""

    kind = "ray"

    def __init__(self, config: EngineConfig) -> None:
        super().__init__(config)
        self._description = json.dumps({**config.describe(), "versions": versions()})
        self._session = ExitStack()

    def __enter__(self) -> Self:
        self._session.enter_context(ray_session(self.config.workers))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._session.close()

    def train(self, model: Tensor, jobs: Sequence[Job], lr: float) -> dict[int, float]:
        """Run all jobs from this model and return their mean losses by row."""
        start, losses = ray.put(model.numpy()), {}

        def submit(job: Job) -> Any:
            x, y = (part.numpy() for part in job.batches())
            return train_task.remote(self._description, start, x, y, lr, job.seed, job.restraint)

        for job, (update, loss) in run_tasks(submit, jobs):
            self.updates.numpy()[job.row] = update
            losses[job.row] = loss
        return losses

    def evaluate(self, model: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """The loss of each example (m,), and whether it is classified correctly (m,)."""
        weights, size = ray.put(model.numpy()), self.config.examples_per_evaluation
        losses, correct = torch.empty(len(x)), torch.empty(len(x), dtype=torch.bool)

        def submit(start: int) -> Any:
            part = slice(start, start + size)
            return evaluate_task.remote(
                self._description, weights, x[part].numpy(), y[part].numpy()
            )

        for start, results in run_tasks(submit, range(0, len(x), size)):
            for whole, part in zip((losses, correct), results, strict=True):
                whole.numpy()[start : start + size] = part
        return losses, correct


def run_tasks(submit: Callable[[Item], Any], items: Iterable[Item]) -> Iterator[tuple[Item, Any]]:
    """Submit a task for each item, a few at a time; yield their results as they arrive."""
    waiting, cores = deque(items), cores_by_node()
    running: dict[Any, Item] = {}
    while waiting or running:
        while waiting and len(running) < TASKS_PER_WORKER * sum(cores.values()):
            item = waiting.popleft()
            running[submit(item)] = item
        done, _ = ray.wait(list(running), timeout=SECONDS_BETWEEN_CHECKS)
        for reference in done:
            yield running.pop(reference), result_of(reference)
        if not done:
            before, cores = cores, cores_by_node()
            if before.keys() - cores.keys():  # Ray may wait for minutes for a machine that is gone
                waiting.extendleft(running.values())
                running.clear()


def cores_by_node() -> dict[str, int]:
    """The number of cores of each machine that is alive and has any."""
    nodes: Callable[[], list[dict[str, Any]]] = ray.nodes
    cores = {each["NodeID"]: each["Resources"].get("CPU", 0) for each in nodes() if each["Alive"]}
    if not any(cores.values()):
        raise WorkerError("no machine of the Ray cluster is left to run a task")
    return {node: int(number) for node, number in cores.items() if number}


def result_of(reference: Any) -> Any:
    """The result of a finished task; raises if the task failed or was lost."""
    try:
        result = ray.get(reference)
    except RayTaskError as error:
        raise WorkerError(f"a Ray task failed: {error}") from None
    except RayError as error:
        raise WorkerError(
            f"Ray could not finish a task in {MAX_DEATHS_PER_TASK} attempts (processes are often "
            f"killed because memory runs out): {error}"
        ) from None
    if isinstance(result, UserCodeError):
        raise result
    return result


@task
def train_task(
    description: str,
    start: np.ndarray,
    x: np.ndarray,
    y: np.ndarray,
    lr: float,
    seed: int,
    restraint: float,
) -> tuple[np.ndarray, float] | UserCodeError:
    """The update and the mean loss of one client, or the error of the user's model."""
    try:
        flat, training = build_model(description)
        weights, inputs, targets = map(torch.tensor, (start, x, y))
        torch.manual_seed(seed)
        out = torch.empty_like(weights)
        loss = local_update(flat, weights, inputs, targets, training, lr, out, restraint)
    except UserCodeError as error:
        return error
    return out.numpy(), loss


@task
def evaluate_task(
    description: str, weights: np.ndarray, x: np.ndarray, y: np.ndarray
) -> tuple[np.ndarray, ...] | UserCodeError:
    """The losses of some examples and whether they are classified correctly."""
    try:
        flat, training = build_model(description)
        start, inputs, targets = map(torch.tensor, (weights, x, y))
        results = evaluate(flat, start, inputs, targets, training)
    except UserCodeError as error:
        return error
    return tuple(part.numpy() for part in results)


@lru_cache(maxsize=1)
def build_model(text: str) -> tuple[FlatModel, LocalTraining]:
    """The model and the training of a description, built once in each process."""
    description = json.loads(text)
    if (expected := description["versions"]) != (installed := versions()):
        raise ValueError(
            f"this machine has {installed}, the run {expected}: install the same versions"
        )
    torch.set_num_threads(1)
    return build_described(description)


def versions() -> dict[str, str]:
    """The versions that must be equal everywhere for the same bits."""
    return {package: version(package) for package in ("fedro", "torch")}
