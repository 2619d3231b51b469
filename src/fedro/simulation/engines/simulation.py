"""Flower's simulation in threads of this process: nodes, each of whose jobs a process of Ray does.

Ray runs on this machine, or where $RAY_ADDRESS says.
"""

import logging
import os
import signal
import sys
import threading
from queue import Empty, SimpleQueue
from typing import Any

import ray
from flwr.app import Context
from flwr.serverapp import Grid, ServerApp
from flwr.simulation import run_simulation

from fedro.simulation.engines.node import app
from fedro.simulation.engines.workers import ENVIRONMENT, cores

BEGIN, END = 300.0, 30.0  # seconds in which a simulation must begin, and end
LOGGERS = [logging.getLogger(name) for name in ("flwr", "ray")]


class Simulation:
    """A simulation that runs until it is stopped, and the grid that leads to its nodes.

    Flower gives the grid to a server app; this one hands it on and waits.
    """

    def __init__(self, nodes: int, workers: int | None = None) -> None:
        self.nodes, self.workers = nodes, workers
        self.error: BaseException | None = None
        self._grids: SimpleQueue[Grid | None] = SimpleQueue()
        self._stop = threading.Event()
        self._levels = [logger.level for logger in LOGGERS]
        for logger in LOGGERS:
            logger.setLevel(logging.CRITICAL)  # what goes wrong is told by errors
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        try:
            self.grid = self._begun()
        except BaseException:
            self.stop()
            raise
        keep_signals()

    def _begun(self) -> Grid:
        try:
            grid = self._grids.get(timeout=BEGIN)
        except Empty:
            raise ChildProcessError(f"Ray has not begun to run within {BEGIN:.0f} s") from None
        if grid is None:
            self._thread.join()
            raise ChildProcessError(self.trouble())
        return grid

    def trouble(self) -> str | None:
        """Why it does not run, or None if it does."""
        if self._thread.is_alive():
            return None
        error = self.error
        while error is not None and error.__cause__ is not None:
            error = error.__cause__
        return f"Flower's simulation has ended: {type(error).__name__}: {error}"

    def stop(self) -> None:
        """End it, with all of its processes."""
        self._stop.set()
        kill_processes()  # a job may take long, and nobody wants it any more
        self._thread.join(END)
        for logger, level in zip(LOGGERS, self._levels, strict=True):
            logger.setLevel(level)

    def _run(self) -> None:
        server = ServerApp()

        @server.main()
        def main(grid: Grid, context: Context) -> None:
            while not (list(grid.get_node_ids()) or self._stop.wait(0.05)):
                pass  # they are about to register
            self._grids.put(grid)
            self._stop.wait()

        try:
            connect(self.workers)
            config: Any = {"client_resources": {"num_cpus": 1}}
            run_simulation(server, app, self.nodes, backend_config=config)
        except BaseException as error:  # told to the thread that waits
            self.error = error
        finally:
            ray.shutdown()
            self._grids.put(None)


def connect(workers: int | None) -> None:
    """Start Ray here, or go to where it runs."""
    here = "RAY_ADDRESS" not in os.environ
    path = os.pathsep.join(sys.path)
    ray.init(
        address="local" if here else None,
        num_cpus=(workers or cores()) if here else None,
        include_dashboard=False,
        configure_logging=False,
        log_to_driver=False,
        runtime_env={"env_vars": {**ENVIRONMENT, "PYTHONPATH": path}},
    )


def kill_processes() -> None:
    """End the processes that do jobs: whoever waits for them is told so."""
    if ray.is_initialized():
        worker: Any = ray._private.worker.global_worker
        for actor in ray._private.state.actors(job_id=worker.current_job_id):
            worker.core_worker.kill_actor(ray.ActorID.from_hex(actor), True)


def keep_signals() -> None:
    """Ray takes SIGTERM for a crash, three seconds before the end: take it back."""
    handler = signal.getsignal(signal.SIGTERM)
    if threading.current_thread() is threading.main_thread() and handler is not None:
        signal.signal(signal.SIGTERM, handler)
