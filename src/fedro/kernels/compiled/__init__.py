"""The compiled kernels, each named after its primitive.

A kernel works on the columns start..stop-1 of x, one cache-sized tile at a time, and releases the
GIL. `rows` holds the numbers of the rows of x that it uses; it sets `bad` (m,) where such a row
holds NaN or Inf. Kernels that sum over columns write one sum for each block of GRID columns;
`start` lies `skip` columns after the beginning of the first block.
"""

from .distances import distances, geometry
from .order_statistics import band
from .sums import blend, combine, facts, moments

__all__ = ["band", "blend", "combine", "distances", "facts", "geometry", "moments"]
