"""Random streams: one for each purpose, so that order, threads and restarts change nothing.

>>> int(stream(0, "sample", 3).integers(100))
92
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np


def stream(seed: int, purpose: str, *keys: int) -> np.random.Generator:
    """Make the generator for one purpose: ``stream(seed, "batches", round, client)``.

    Args:
        seed: The seed of the run.
        purpose: What the numbers are for.
        *keys: Numbers that tell streams of the same purpose apart, such as the round.
    """
    key = np.frombuffer(_digest(seed, purpose, *keys), dtype="<u8")
    return np.random.Generator(np.random.Philox(key=key))


def derived(seed: int, purpose: str, *keys: int) -> int:
    """Derive a seed of 63 bits, for code that takes a seed instead of a generator."""
    return int.from_bytes(_digest(seed, purpose, *keys)[:8], "little") >> 1


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Set torch's global seed within a block, for code without a generator (dropout, layers)."""
    import torch

    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(seed)
        yield


def _digest(seed: int, purpose: str, *keys: int) -> bytes:
    text = repr((int(seed), purpose, *map(int, keys))).encode()
    return hashlib.blake2b(text, digest_size=16).digest()
