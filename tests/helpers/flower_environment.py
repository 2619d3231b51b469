"""For tests that start Flower's processes: their environment, free ports, waits that end."""

import random
import shutil
import socket
import sqlite3
import time
from contextlib import closing

QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",  # 15 by default: a busy machine would let clients starve
}
NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")


def free_ports(count):
    """The first of so many ports in a row that are free."""
    for _ in range(100):
        first = random.randrange(20_000, 30_000)
        try:
            for port in range(first, first + count):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", port))
        except OSError:
            continue
        return first
    raise AssertionError("no free ports")


def until(what, seconds, true, check=lambda: None):
    """Wait; every 20 s, `check` may find out that there is nothing to wait for."""
    end = time.monotonic() + seconds
    next_check = time.monotonic() + 20
    while not true():
        assert time.monotonic() < end, f"{what}: not within {seconds} s"
        if time.monotonic() > next_check:
            check()
            next_check = time.monotonic() + 20
        time.sleep(0.2)


def let_heartbeat_lapse(folder, node_id):
    """Make the SuperLink miss a dead node now, and not only after two intervals of 30 s."""
    signed = int(node_id) - (2**64 if int(node_id) >= 2**63 else 0)
    with closing(sqlite3.connect(folder / "server/state.db", timeout=60)) as database, database:
        changed = database.execute("UPDATE node SET online_until=1 WHERE node_id=?", (signed,))
        assert changed.rowcount == 1
