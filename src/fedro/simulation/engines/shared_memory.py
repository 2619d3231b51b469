"""Memory shared with worker processes: one anonymous file that holds several named tensors.

It is a memfd, because /dev/shm is small in containers; the system frees it with the last process.
"""

import math
import mmap
import os
import tempfile
from typing import NamedTuple

import torch
from torch import Tensor

CACHE_LINE = 64  # bytes


class SharedTensor(NamedTuple):
    """A tensor in the shared memory; its dtype is a name so that JSON can hold it."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """The number of bytes, rounded up to whole cache lines."""
        item: int = getattr(torch, self.dtype).itemsize
        return -(-item * math.prod(self.shape) // CACHE_LINE) * CACHE_LINE


def create_memory(layout: list[SharedTensor]) -> int:
    """Create zeroed memory for these tensors and return its file descriptor."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("fedro")
    else:  # not Linux
        descriptor, path = tempfile.mkstemp(prefix="fedro-")
        os.unlink(path)
    os.truncate(descriptor, sum(tensor.size for tensor in layout) or CACHE_LINE)
    return descriptor


def map_tensors(descriptor: int, layout: list[SharedTensor]) -> dict[str, Tensor]:
    """The tensors in that memory by name; every process sees what another one writes."""
    memory = mmap.mmap(descriptor, 0)
    tensors: dict[str, Tensor] = {}
    start = 0
    for tensor in layout:
        count, dtype = math.prod(tensor.shape), getattr(torch, tensor.dtype)
        flat = torch.frombuffer(memory, dtype=dtype, count=count, offset=start)
        tensors[tensor.name] = flat.view(tensor.shape)
        start += tensor.size
    return tensors
