"""The clients' data: sources, partitions, and the federation that they make.

A *source* provides examples, for instance ``femnist`` or your own function. A *partition* decides
which client gets which examples. `make_federation` combines the two by name; `from_clients` makes a
federation of arrays that you already have.

>>> federation = make_federation("digits", clients=20, partition="dirichlet(alpha=0.5)")
>>> federation.clients, federation.shape
(20, (1, 8, 8))
"""

from fedro.data import cifar10, digits, femnist, folder, synthetic
from fedro.data.federation import Examples, Federation, spread
from fedro.data.partitions import PARTITIONS
from fedro.data.sources import SOURCES, make_federation
from fedro.data.user_data import from_clients

__all__ = [
    "PARTITIONS",
    "SOURCES",
    "Examples",
    "Federation",
    "from_clients",
    "make_federation",
    "spread",
]

_MODULES = (cifar10, digits, femnist, folder, synthetic)  # importing them fills the table
