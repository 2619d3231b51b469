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
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from typing import Any

from fedro.simulation.engines.workers import ENVIRONMENT, available_cores

QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
PRIVATE = {
    "RAY_AUTH_MODE": "token",
    # Ray replaces 127.0.0.1 by the machine's address, unless the system cannot have a cluster.
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
}
SHORT_PATH = "/tmp"  # the paths of Ray's sockets must have less than 108 bytes


def prepare_import() -> None:
    """Set the variables that Ray reads when it is imported.

    Raises:
        ImportError: Ray was imported earlier, and would listen on all interfaces without a token.
    """
    variables = QUIET if "RAY_ADDRESS" in os.environ else {**QUIET, **PRIVATE}
    ray = sys.modules.get("ray")
    if ray is None:
        os.environ.update(variables)
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    elif not ray.is_initialized() and not variables.items() <= os.environ.items():
        raise ImportError(
            "this program imported Ray before fedro could confine it to this machine: run the "
            "experiment before `import ray`, or connect to a Ray of your own with `ray.init`"
        )


@contextmanager
def ray_session(workers: int | None) -> Iterator[None]:
    """Context in which this process is connected to Ray; a connection that it has is kept."""
    import ray

    if ray.is_initialized():
        yield
        return
    path = os.pathsep.join(map(os.path.abspath, sys.path))
    options: dict[str, Any] = {
        "configure_logging": False,
        "log_to_driver": False,
        "runtime_env": {"env_vars": {**ENVIRONMENT, "PYTHONPATH": path}},
    }
    if "RAY_ADDRESS" not in os.environ:
        cores = workers or available_cores()
        options |= {"address": "local", "num_cpus": cores, "include_dashboard": False}
    with private_folder(), without_messages():
        try:
            with same_sigterm_handler():
                ray.init(**options)
            yield
        finally:
            ray.shutdown()


@contextmanager
def private_folder() -> Iterator[None]:
    """Context in which a Ray that is started has a folder that only this user can read."""
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
