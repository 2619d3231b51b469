"""Memory that worker processes share: one anonymous file, cut into named tensors.

A memfd is used because the /dev/shm of containers is small; it vanishes with the last process.
"""

import math
import mmap
import os
import tempfile
from typing import NamedTuple

import torch
from torch import Tensor

LINE = 64  # bytes in a line of the cache


class Part(NamedTuple):
    """A tensor's place in the memory: dtype by name, so that it can be told in JSON."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """In bytes, rounded up to whole lines."""
        item: int = getattr(torch, self.dtype).itemsize
        return -(-item * math.prod(self.shape) // LINE) * LINE


def create(parts: list[Part]) -> int:
    """A file descriptor of fresh, zeroed memory for these tensors."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("fedro")
    else:  # not Linux
        descriptor, path = tempfile.mkstemp(prefix="fedro-")
        os.unlink(path)
    os.truncate(descriptor, sum(part.size for part in parts) or LINE)
    return descriptor


def tensors(descriptor: int, parts: list[Part]) -> dict[str, Tensor]:
    """The tensors in that memory; writing to them is seen by every process."""
    memory = mmap.mmap(descriptor, 0)
    found: dict[str, Tensor] = {}
    start = 0
    for part in parts:
        size = math.prod(part.shape)
        dtype = getattr(torch, part.dtype)
        flat = torch.frombuffer(memory, dtype=dtype, count=size, offset=start)
        found[part.name] = flat.view(part.shape)
        start += part.size
    return found
