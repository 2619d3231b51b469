"""Built-in networks, your own by name, and `FlatModel`: a module as one flat vector."""

from fedro.models.flat import FlatModel
from fedro.models.networks import MODELS, build, register, seeded_module

__all__ = ["MODELS", "FlatModel", "build", "register", "seeded_module"]
