"""Normal numbers in threads, the same ones for any number of threads."""

import numpy as np
import torch
from torch import Tensor

from fedro.kernels.parallel import GRID, ordered

BLOCK = 8 * GRID  # numbers that a generator makes


def fill_normal(room: Tensor, rng: np.random.Generator) -> Tensor:
    """Fill a vector with numbers from the standard normal distribution, and return it.

    Torch makes them twice as fast as NumPy; its generators take 32 bits of a seed.
    """
    seeds = rng.integers(2**32, size=-(-len(room) // BLOCK))

    def fill(start: int, stop: int) -> None:
        dice = torch.Generator().manual_seed(int(seeds[start // BLOCK]))
        room[start:stop].normal_(generator=dice)

    for _ in ordered(fill, len(room), BLOCK):
        pass
    return room
