"""Clients' data: sources, partitions, and the federation that they make.

>>> federation = make_federation("digits", clients=20, partition="dirichlet(alpha=0.5)")
>>> federation.clients, federation.shape
(20, (1, 8, 8))
"""

from fedro.data import cifar10, digits, femnist, folder, synthetic
from fedro.data.federation import Examples, Federation
from fedro.data.own import from_clients
from fedro.data.partitions import PARTITIONS
from fedro.data.problem import spread
from fedro.data.sources import SOURCES, make_federation

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
