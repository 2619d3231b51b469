"""The engine that sends each job as a message to a Flower node, here or on another machine.

A job depends on nothing but its message: every node computes the same bits as the `workers` engine.
The engine repeats jobs that are lost because a process or a machine fails.
"""

import json
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Protocol

import torch
from flwr.app import Array, Error, Message, MessageType
from flwr.serverapp import Grid
from torch import Tensor

from fedro.common.user_code import UserCodeError
from fedro.simulation.engines import EngineConfig, Job
from fedro.simulation.engines.flower_node import job_content, versions
from fedro.simulation.engines.inline import InlineEngine
from fedro.simulation.engines.workers import WorkerError

MAX_ATTEMPTS = 3  # to run all jobs of a round
SECONDS_BETWEEN_POLLS = 0.02
SECONDS_WITHOUT_REPLY = 1800.0  # after which all nodes count as lost
APP_ERROR_CODES = (1, 2)  # errors of the app itself, which another attempt would meet again


class Nodes(Protocol):
    """A group of running Flower nodes."""

    grid: Grid

    def failure(self) -> str | None:
        """Why the nodes have stopped, or None while they run."""

    def stop(self) -> None:
        """Stop the nodes."""


class FlowerEngine(InlineEngine):
    """Trains on Flower nodes, and evaluates models in this process."""

    kind = "flower"

    def __init__(
        self, config: EngineConfig, start_nodes: Callable[[], Nodes] | None = None
    ) -> None:
        super().__init__(config)
        self._start_nodes = start_nodes or self._start_simulation
        self._nodes: Nodes | None = None
        self._description = json.dumps({**config.describe(), "versions": versions()})

    def _start_simulation(self) -> Nodes:
        from fedro.simulation.engines.flower_simulation import FlowerSimulation

        return FlowerSimulation(self.config.rows, self.config.workers)

    def train(self, model: Tensor, jobs: Sequence[Job], lr: float) -> dict[int, float]:
        """Run all jobs from this model and return their mean losses by row."""
        losses: dict[int, float] = {}
        for _ in range(MAX_ATTEMPTS):
            missing = [job for job in jobs if job.row not in losses]
            failure = self._attempt(model, missing, lr, losses)
            if failure is None:
                return losses
            self._stop()  # otherwise Flower keeps giving jobs to dead processes
        raise WorkerError(
            f"Flower nodes lost jobs in {MAX_ATTEMPTS} attempts, the last time: {failure} "
            "(processes are often killed because memory runs out)"
        )

    def _attempt(
        self, model: Tensor, jobs: Sequence[Job], lr: float, losses: dict[int, float]
    ) -> str | None:
        """Send jobs and receive their results; why a job was lost, or None if none was."""
        nodes = self._nodes = self._nodes or self._start_nodes()
        waiting, last_reply = self._send(nodes.grid, model, jobs, lr), time.monotonic()
        failure = None
        while waiting and failure is None:
            failure = nodes.failure()
            if time.monotonic() - last_reply > SECONDS_WITHOUT_REPLY:
                failure = f"no node has replied for {SECONDS_WITHOUT_REPLY:.0f} s"
            for reply in nodes.grid.pull_messages(list(waiting)):
                job = waiting.pop(reply.metadata.reply_to_message_id)
                last_reply = time.monotonic()
                if reply.has_error():
                    failure = describe_loss(reply.error)
                else:
                    losses[job.row] = self._store(reply, job.row)
            time.sleep(SECONDS_BETWEEN_POLLS)
        return None if all(job.row in losses for job in jobs) else failure

    def _send(self, grid: Grid, model: Tensor, jobs: Sequence[Job], lr: float) -> dict[str, Job]:
        """Spread the jobs over the nodes; returns them by the ids of their messages."""
        start, ids = Array(model.numpy()), list(grid.get_node_ids())
        messages = [
            Message(
                job_content(start, job, self._description, lr),
                ids[index % len(ids)],
                MessageType.TRAIN,
            )
            for index, job in enumerate(jobs)
        ]
        return dict(zip(grid.push_messages(messages), jobs, strict=True))

    def _store(self, reply: Message, row: int) -> float:
        """Write the update of a reply into its row, and return the loss."""
        failed = reply.content.config_records.get("user error")
        if failed is not None:
            raise UserCodeError(**json.loads(str(failed["error"])))
        update = reply.content.array_records["update"]["update"].numpy()
        self.updates[row] = torch.from_numpy(update)
        loss = reply.content.metric_records["loss"]["loss"]
        assert isinstance(loss, float)
        return loss

    def _stop(self) -> None:
        if self._nodes is not None:
            self._nodes.stop()
            self._nodes = None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop()


def describe_loss(error: Error) -> str:
    """Why a node lost a job; raises if another attempt would fail as well."""
    if error.code in APP_ERROR_CODES:
        raise WorkerError(f"a Flower node failed: {error.reason}")
    return f"error {error.code}: {error.reason}"
