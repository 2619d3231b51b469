"""Shared settings of the tests."""

import importlib
import os
import signal

# Threads that wait must not spin: several tests share the cores. Read when torch is imported.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

from hypothesis import settings

from browser import chromium, page  # noqa: F401  (fixtures)
from leftover_processes import (  # noqa: F401  (hooks)
    pytest_configure,
    pytest_sessionfinish,
    pytest_terminal_summary,
)

# The machine may be slow or busy: an example has no deadline, and CI draws the same ones each time.
settings.register_profile("default", deadline=None, max_examples=200, derandomize=True)
settings.register_profile("quick", deadline=None, max_examples=20, derandomize=True)
settings.register_profile("deep", deadline=None, max_examples=3000)
settings.load_profile(os.environ.get("FEDRO_HYPOTHESIS", "default"))

# A shell's background job ignores Ctrl-C, and so would every process that tests start and stop.
signal.signal(signal.SIGINT, signal.default_int_handler)

# A module whose rules take part in the tests of all rules.
if "FEDRO_TEST_IMPORT" in os.environ:
    importlib.import_module(os.environ["FEDRO_TEST_IMPORT"])
