"""Every random draw: one stream for each use, so that order, threads and restarts change nothing.

>>> int(stream(0, "sample", 3).integers(100))
92
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np


def stream(seed: int, purpose: str, *keys: int) -> np.random.Generator:
    """The random numbers of one use: ``stream(seed, "batches", round, client)``."""
    key = np.frombuffer(_digest(seed, purpose, *keys), dtype="<u8")
    return np.random.Generator(np.random.Philox(key=key))


def derived(seed: int, purpose: str, *keys: int) -> int:
    """A seed of 63 bits for code that takes a seed instead of a stream."""
    return int.from_bytes(_digest(seed, purpose, *keys)[:8], "little") >> 1


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """For torch code that takes no generator (dropout, initialization); restores the old state."""
    import torch

    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(seed)
        yield


def _digest(seed: int, purpose: str, *keys: int) -> bytes:
    text = repr((int(seed), purpose, *map(int, keys))).encode()
    return hashlib.blake2b(text, digest_size=16).digest()
