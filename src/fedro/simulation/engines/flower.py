"""Each job is a message to a node of Flower's, so that training can leave this machine.

A job depends on nothing but itself: whoever does it, it gives the bits that `workers` give. What
is lost, with a process or a machine, is done again.
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

from fedro.simulation.engines import Job, Setting
from fedro.simulation.engines.inline import Inline
from fedro.simulation.engines.node import order, versions
from fedro.simulation.engines.portable import described
from fedro.simulation.engines.workers import WorkerError

TRIES = 3  # to get all jobs of a round done
PAUSE = 0.02  # seconds between two looks at what has come
PATIENCE = 1800.0  # seconds in which no node answers, after which all are given up
BY_THE_APP = (1, 2)  # codes of errors that the next try would meet again


class Nodes(Protocol):
    """Something that does jobs while it runs."""

    grid: Grid

    def trouble(self) -> str | None:
        """Why it does not run, or None if it does."""

    def stop(self) -> None:
        """End it."""


class Flower(Inline):
    """The engine on Flower. Models are evaluated here."""

    kind = "flower"

    def __init__(self, setting: Setting, start: Callable[[], Nodes] | None = None) -> None:
        super().__init__(setting)
        self._start = start or self._simulate
        self._nodes: Nodes | None = None
        self._work = json.dumps({**described(setting), "versions": versions()})

    def _simulate(self) -> Nodes:
        from fedro.simulation.engines.simulation import Simulation

        return Simulation(self.setting.rows, self.setting.workers)

    def train(self, model: Tensor, jobs: Sequence[Job], lr: float) -> dict[int, float]:
        """Run all jobs from this model; their mean losses, by row."""
        losses: dict[int, float] = {}
        for _ in range(TRIES):
            lost = self._attempt(model, [job for job in jobs if job.row not in losses], lr, losses)
            if lost is None:
                return losses
            self._stop()  # Flower goes on giving jobs to processes that are dead
        raise WorkerError(
            f"{TRIES} times jobs were lost on Flower's nodes, the last time: {lost} (processes are "
            "often killed for want of memory)"
        )

    def _attempt(
        self, model: Tensor, jobs: Sequence[Job], lr: float, losses: dict[int, float]
    ) -> str | None:
        """Send jobs and take in what comes; why one was lost, or None when all are done."""
        nodes = self._nodes = self._nodes or self._start()
        waiting, last = self._send(nodes.grid, model, jobs, lr), time.monotonic()
        lost = None
        while waiting and lost is None:
            lost = nodes.trouble()
            if time.monotonic() - last > PATIENCE:
                lost = f"no node has answered for {PATIENCE:.0f} s"
            for reply in nodes.grid.pull_messages(list(waiting)):
                job, last = waiting.pop(reply.metadata.reply_to_message_id), time.monotonic()
                if reply.has_error():
                    lost = why_lost(reply.error)
                else:
                    losses[job.row] = self._take(reply, job.row)
            time.sleep(PAUSE)
        return None if all(job.row in losses for job in jobs) else lost

    def _send(self, grid: Grid, model: Tensor, jobs: Sequence[Job], lr: float) -> dict[str, Job]:
        start, ids = Array(model.numpy()), list(grid.get_node_ids())
        messages = [
            Message(
                order(start, job, self._work, lr),
                ids[place % len(ids)],
                MessageType.TRAIN,
            )
            for place, job in enumerate(jobs)
        ]
        return dict(zip(grid.push_messages(messages), jobs, strict=True))

    def _take(self, reply: Message, row: int) -> float:
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


def why_lost(error: Error) -> str:
    """Why a node has no result, if another try may have one."""
    if error.code in BY_THE_APP:
        raise WorkerError(f"a node of Flower's failed: {error.reason}")
    return f"error {error.code}: {error.reason}"
