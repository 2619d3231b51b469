"""Messages made without a look at anything."""

from torch import Tensor

from fedro import kernels
from fedro.attacks.table import forge
from fedro.attacks.view import View, Writer


@forge()
def zero(view: View) -> Tensor:
    """Zeros: the bad clients hold the model where it is."""
    return view.full(0.0)


@forge()
def nan(view: View) -> Tensor:
    """Not a number, in every coordinate."""
    return view.full(float("nan"))


@forge()
def inf(view: View) -> Tensor:
    """Infinity, in every coordinate."""
    return view.full(float("inf"))


@forge()
def huge(view: View, *, value: float = 1e30) -> Tensor:
    """One number in every coordinate, finite but far off."""
    return view.full(value)


@forge(least={"std": 0.0}, source="Blanchard et al. 2017", each=True)
def gauss(view: View, *, std: float, mean: float = 0.0) -> Writer:
    """Noise, each client its own: N(mean, std²) in every coordinate."""
    return lambda updates, rows: kernels.normal(updates, view.rng, mean, std, rows=rows)
