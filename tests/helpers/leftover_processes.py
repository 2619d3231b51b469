"""Fail a test session that leaves processes behind, and kill them. Used as a plugin by conftest.

Every process that a test starts inherits the session's id from the environment. When the session
ends, `/proc` shows which processes with this id are still running.
"""

import os
import signal
import time
import uuid
from contextlib import suppress
from pathlib import Path

import pytest

VARIABLE = "FEDRO_TEST_SESSION"  # ids of this session and of those that it runs inside
SECONDS_TO_END = 10.0  # for processes that are shutting down when the last test ends
# Python stops it when the interpreter exits.
IGNORED = "multiprocessing.resource_tracker"

SESSION_ID = pytest.StashKey[str]()
LEFTOVERS = pytest.StashKey[dict[int, str]]()


def with_id(session_id):
    """Command lines of the running processes that inherited the id, by process id."""
    commands = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has just ended, or belongs to somebody else
            if session_id.encode() in (folder / "environ").read_bytes():
                command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
                if IGNORED not in command:
                    commands[int(folder.name)] = command
    commands.pop(os.getpid(), None)
    return commands


def is_worker(config):
    return hasattr(config, "workerinput")  # of pytest-xdist: its controller does the work


def pytest_configure(config):
    if not is_worker(config):
        config.stash[SESSION_ID] = uuid.uuid4().hex
        outer = os.environ.get(VARIABLE, "")
        os.environ[VARIABLE] = f"{outer} {config.stash[SESSION_ID]}".strip()


@pytest.hookimpl(trylast=True)  # after pytest-xdist has stopped its workers
def pytest_sessionfinish(session):
    if is_worker(session.config):
        return
    session_id = session.config.stash[SESSION_ID]
    end = time.monotonic() + SECONDS_TO_END
    while (leftovers := with_id(session_id)) and time.monotonic() < end:
        time.sleep(0.1)
    session.config.stash[LEFTOVERS] = leftovers
    for pid in leftovers:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    if leftovers and session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter, config):
    leftovers = config.stash.get(LEFTOVERS, {})
    if leftovers:
        terminalreporter.section("processes left behind", red=True, bold=True)
        terminalreporter.line("The tests started these processes and did not stop them:")
        for pid, command in leftovers.items():
            terminalreporter.line(f"  {pid} (killed): {command[:300]}")
