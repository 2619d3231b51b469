"""The compiled kernels: columns start..stop-1 of x, a cache-sized tile at a time.

`rows` picks rows of x, `bad` (m,) is set where a picked row holds NaN or Inf. They release the GIL.
"""

from .banded import band
from .measured import facts
from .pairwise import pairs
from .spreading import geometry, moments
from .weighted import blend, combine

__all__ = ["band", "blend", "combine", "facts", "geometry", "moments", "pairs"]
