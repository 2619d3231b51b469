"""A limit on memory while replies are read."""

import resource
import subprocess
import sys

import pytest

from fedro.flower.memory_limit import allocated_bytes, memory_limit

GREEDY = """
import numpy as np
from fedro.flower.memory_limit import RESERVE_BYTES, memory_limit

with memory_limit(100 * 2**20):
    allowed = np.ones(90 * 2**20, np.uint8)
    try:
        np.ones(RESERVE_BYTES + 100 * 2**20, np.uint8)
    except MemoryError:
        print("refused")
print(len(np.ones(RESERVE_BYTES + 100 * 2**20, np.uint8)) - RESERVE_BYTES)
"""


def test_more_memory_is_refused_and_the_process_goes_on():
    command = [sys.executable, "-c", GREEDY]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == ["refused", str(100 * 2**20)]


def test_the_limit_is_gone_afterwards_and_an_operators_own_stays():
    before = resource.getrlimit(resource.RLIMIT_DATA)
    with memory_limit(10):
        assert resource.getrlimit(resource.RLIMIT_DATA)[0] > allocated_bytes()
    assert resource.getrlimit(resource.RLIMIT_DATA) == before
    with pytest.raises(KeyError), memory_limit(10):
        raise KeyError
    assert resource.getrlimit(resource.RLIMIT_DATA) == before
    own = 2**40
    resource.setrlimit(resource.RLIMIT_DATA, (own, before[1]))
    try:
        with memory_limit(10):
            assert resource.getrlimit(resource.RLIMIT_DATA)[0] == own
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)
