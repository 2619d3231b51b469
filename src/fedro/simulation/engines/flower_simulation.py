"""A Flower simulation in a thread of this process, whose nodes compute in Ray processes.

Ray runs on this machine, or on the cluster that $RAY_ADDRESS names.
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

from fedro.simulation.engines.flower_node import app
from fedro.simulation.engines.workers import ENVIRONMENT, available_cores

MAX_SECONDS_TO_START = 300.0
MAX_SECONDS_TO_STOP = 30.0
LOGGERS = [logging.getLogger(name) for name in ("flwr", "ray")]


class FlowerSimulation:
    """A simulation that runs until it is stopped, and the grid that reaches its nodes.

    Flower gives the grid only to a server app. The server app used here passes it on and waits.
    """

    def __init__(self, nodes: int, workers: int | None = None) -> None:
        self.nodes, self.workers = nodes, workers
        self.error: BaseException | None = None
        self._grids: SimpleQueue[Grid | None] = SimpleQueue()
        self._stop = threading.Event()
        self._levels = [logger.level for logger in LOGGERS]
        for logger in LOGGERS:
            logger.setLevel(logging.CRITICAL)  # failures are reported as exceptions
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        try:
            self.grid = self._wait_for_grid()
        except BaseException:
            self.stop()
            raise
        restore_sigterm_handler()

    def _wait_for_grid(self) -> Grid:
        try:
            grid = self._grids.get(timeout=MAX_SECONDS_TO_START)
        except Empty:
            raise ChildProcessError(
                f"Ray has not started within {MAX_SECONDS_TO_START:.0f} s"
            ) from None
        if grid is None:
            self._thread.join()
            raise ChildProcessError(self.failure())
        return grid

    def failure(self) -> str | None:
        """Why the simulation has ended, or None while it runs."""
        if self._thread.is_alive():
            return None
        error = self.error
        while error is not None and error.__cause__ is not None:
            error = error.__cause__
        return f"the Flower simulation has ended: {type(error).__name__}: {error}"

    def stop(self) -> None:
        """End the simulation and all of its processes."""
        self._stop.set()
        kill_actors()  # a job may take long, and nobody needs its result any more
        self._thread.join(MAX_SECONDS_TO_STOP)
        for logger, level in zip(LOGGERS, self._levels, strict=True):
            logger.setLevel(level)

    def _run(self) -> None:
        server = ServerApp()

        @server.main()
        def main(grid: Grid, context: Context) -> None:
            while not (list(grid.get_node_ids()) or self._stop.wait(0.05)):
                pass  # the nodes are about to register
            self._grids.put(grid)
            self._stop.wait()

        try:
            start_ray(self.workers)
            config: Any = {"client_resources": {"num_cpus": 1}}
            run_simulation(server, app, self.nodes, backend_config=config)
        except BaseException as error:  # `failure` reports it in the thread that waits
            self.error = error
        finally:
            ray.shutdown()
            self._grids.put(None)


def start_ray(workers: int | None) -> None:
    """Start Ray on this machine, or connect to the cluster in $RAY_ADDRESS."""
    local = "RAY_ADDRESS" not in os.environ
    path = os.pathsep.join(sys.path)
    ray.init(
        address="local" if local else None,
        num_cpus=(workers or available_cores()) if local else None,
        include_dashboard=False,
        configure_logging=False,
        log_to_driver=False,
        runtime_env={"env_vars": {**ENVIRONMENT, "PYTHONPATH": path}},
    )


def kill_actors() -> None:
    """Kill the processes that run jobs; whoever waits for them receives an error."""
    if ray.is_initialized():
        worker: Any = ray._private.worker.global_worker
        for actor in ray._private.state.actors(job_id=worker.current_job_id):
            worker.core_worker.kill_actor(ray.ActorID.from_hex(actor), True)


def restore_sigterm_handler() -> None:
    """Take SIGTERM back from Ray, whose own handler would treat it as a crash after 3 seconds."""
    handler = signal.getsignal(signal.SIGTERM)
    if threading.current_thread() is threading.main_thread() and handler is not None:
        signal.signal(signal.SIGTERM, handler)
