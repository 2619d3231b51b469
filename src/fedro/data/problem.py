"""A training problem whose constants are known: least squares with a center for each client."""

from typing import TypedDict

from torch import Tensor


class Problem(TypedDict):
    """The constants of the paper's theorems for clients with loss f_i(w) = ½ E‖w − s‖²."""

    sigma: float  # E‖s − center_i‖² = σ² for every client
    zeta: float  # the mean of ‖center_i − optimum‖² over these clients is ζ²
    L: float  # smoothness
    optimum: Tensor  # (dim,)
    centers: Tensor  # (clients, dim)


def spread(centers: Tensor) -> float:
    """ζ of some clients: √ of the mean of ‖center_i − their mean‖²; ``spread(centers[honest])``."""
    exact = centers.double()
    return float((exact - exact.mean(0)).square().sum(1).mean().sqrt())


def least_squares(centers: Tensor, sigma: float, zeta: float | None = None) -> Problem:
    """The problem of clients with these centers."""
    optimum = centers.double().mean(0).to(centers.dtype)
    known = spread(centers) if zeta is None else zeta
    return Problem(sigma=sigma, zeta=known, L=1.0, optimum=optimum, centers=centers)
