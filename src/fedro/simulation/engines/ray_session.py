"""The connection to Ray: to the cluster in $RAY_ADDRESS, or to a Ray of our own on this machine.

Whoever can reach Ray can run code in its processes. Therefore our own Ray listens on the loopback
interface only, asks for a random token, and keeps its files where only this user can read them.
"""

import logging
import os
import secrets
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from importlib.metadata import version
from tempfile import TemporaryDirectory
from typing import Any

from fedro.simulation.engines.workers import ENVIRONMENT, WorkerError, available_cores

DEFAULTS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # no warning about GPUs
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".",  # prints no messages of the cluster
    "RAY_NUM_REDIS_GET_RETRIES": "3",  # to reach a cluster, of half a minute each
    "RAY_worker_niceness": "0",  # not 15, which starves tasks on a busy machine
}
PRIVATE = {
    "RAY_AUTH_MODE": "token",
    # Ray replaces 127.0.0.1 by the machine's address, unless the system cannot have a cluster.
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
}
FIRST_WITH_TOKENS = (2, 52)
SHORT_PATH = "/tmp"  # the paths of Ray's sockets must have less than 108 bytes


def on_this_machine() -> bool:
    """Whether the engine starts a Ray of its own."""
    return os.environ.get("RAY_ADDRESS", "local") in ("", "local")


def prepare_import() -> None:
    """Set the variables that Ray reads when it is imported.

    Raises ValueError if a Ray of our own would be open to others.
    """
    for name, value in DEFAULTS.items():
        os.environ.setdefault(name, value)
    ray = sys.modules.get("ray")
    if not on_this_machine() or (ray and ray.is_initialized()):
        return
    if tuple(map(int, version("ray").split(".")[:2])) < FIRST_WITH_TOKENS:
        raise ValueError(
            f"Ray {version('ray')} knows no tokens, so everybody on this machine could run code in "
            "it: install Ray 2.52 or later with pip install 'fedro[ray]'"
        )
    if ray and not PRIVATE.items() <= os.environ.items():
        raise ValueError(
            "this program has imported Ray, which fedro can no longer confine to this machine: run "
            "the experiment before `import ray`, or call `ray.init` to use a Ray of your own"
        )
    os.environ.update(PRIVATE)
    if not os.environ.get("RAY_AUTH_TOKEN"):  # Ray would write one to a file for all to read
        os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)


@contextmanager
def ray_session(workers: int | None) -> Iterator[None]:
    """Context in which this process is connected to Ray; a connection that it has is kept."""
    import ray

    if ray.is_initialized():
        yield
        return
    with private_folder() if on_this_machine() else nullcontext(), without_messages():
        try:
            connect(workers)
            yield
        finally:
            ray.shutdown()


def connect(workers: int | None) -> None:
    """Start Ray, or connect to the cluster, whose tasks can import what this process can."""
    import ray

    path = os.pathsep.join(map(os.path.abspath, sys.path))
    options: dict[str, Any] = {
        "configure_logging": False,
        "log_to_driver": False,
        "runtime_env": {"env_vars": {**ENVIRONMENT, "PYTHONPATH": path}},
    }
    advice = "is RAY_ADDRESS right, and is your token that of the cluster (RAY_AUTH_TOKEN)?"
    if on_this_machine():
        advice = "Ray cannot run on this machine"
        options |= {"address": "local", "include_dashboard": False}
        options |= {"num_cpus": workers or available_cores()}
    try:
        with same_sigterm_handler():
            ray.init(**options)
    except (RuntimeError, OSError) as error:
        reason = str(error).partition("\n")[0]
        raise WorkerError(f"{reason}: {advice}") from error


@contextmanager
def private_folder() -> Iterator[None]:
    """Context in which Ray starts in a new folder that only this user can read."""
    given = os.environ.get("RAY_TMPDIR")
    parent = given or SHORT_PATH
    with TemporaryDirectory(prefix="fedro-", dir=parent, ignore_cleanup_errors=True) as folder:
        os.environ["RAY_TMPDIR"] = folder
        try:
            yield
        finally:
            del os.environ["RAY_TMPDIR"]
            if given is not None:
                os.environ["RAY_TMPDIR"] = given


@contextmanager
def without_messages() -> Iterator[None]:
    """Context in which Ray logs nothing; failures are reported as exceptions."""
    logger = logging.getLogger("ray")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


@contextmanager
def same_sigterm_handler() -> Iterator[None]:
    """Take SIGTERM back from Ray, whose own handler treats it as a crash after three seconds."""
    handler = signal.getsignal(signal.SIGTERM)
    yield
    if threading.current_thread() is threading.main_thread() and handler is not None:
        signal.signal(signal.SIGTERM, handler)
