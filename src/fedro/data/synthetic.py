"""A least-squares problem with known constants, to compare training with the theorems."""

import numpy as np
import torch

from fedro.common.checks import count, number
from fedro.common.streams import stream
from fedro.data.federation import Array, ExampleRows, Federation, least_squares
from fedro.data.sources import DEFAULT_CLIENTS, register


@register(has_owners=True)
def synthetic(
    clients: int | None,
    seed: int,
    *,
    dim: int = 10,
    samples: int = 100,
    sigma: float = 1.0,
    zeta: float = 1.0,
) -> Federation:
    """Points s around a center for each client, loss ½‖w − s‖²: σ, ζ and L = 1 are exact.

    Up to float32 rounding, the mean of a client's training examples is its center and the mean of
    ‖s − center‖² is σ². The same holds for its test examples. Over all clients, the mean of
    ‖center_i − mean‖² is ζ². A part of the clients, such as the honest ones, has another ζ, which
    is ``spread(federation.problem["centers"][honest])``. With a partition other than "owner" the
    constants are unknown and ``problem`` is None.

    Args:
        clients: The number of clients.
        seed: Decides all points.
        dim: The dimension of the points.
        samples: The training examples of each client; a fifth as many are for testing.
        sigma: σ, the spread of a client's examples.
        zeta: ζ, the spread of the clients' centers.
    """
    clients = DEFAULT_CLIENTS if clients is None else clients
    dim, samples = count("dim", dim, 1), count("samples", samples, 1)
    sigma = number("sigma", sigma, "from 0 to 1e15", lambda value: 0 <= value <= 1e15)
    zeta = number("zeta", zeta, "from 0 to 1e15", lambda value: 0 <= value <= 1e15)
    _check_sizes(clients, samples, sigma, zeta)
    middle = stream(seed, "synthetic", 0).standard_normal(dim) / np.sqrt(dim)
    centers = middle + _scattered(stream(seed, "synthetic", 1), clients, dim, zeta)
    problem = least_squares(torch.from_numpy(centers.astype(np.float32)), sigma, zeta)
    sizes = samples, max(2, samples // 5) if sigma else 1
    train, test = (
        _points(problem["centers"].numpy(), size, sigma, seed, which)
        for which, size in enumerate(sizes)
    )
    splits = list(zip(train, test, strict=True))
    return Federation("synthetic", splits, classes=0, scale=1.0, problem=problem)


def _check_sizes(clients: int, samples: int, sigma: float, zeta: float) -> None:
    if sigma and samples < 2:
        raise ValueError(f"samples={samples}: one sample is its own mean; need 2, or sigma=0")
    if zeta and clients < 2:
        raise ValueError(f"clients={clients}: one client is its own mean; need 2, or zeta=0")


def _points(centers: Array, samples: int, sigma: float, seed: int, which: int) -> list[ExampleRows]:
    clients, dim = centers.shape
    streams = [stream(seed, "synthetic", 2, which, client) for client in range(clients)]
    noise = np.stack([_scattered(rng, samples, dim, sigma) for rng in streams])
    points = (centers[:, None].astype(np.float64) + noise).astype(np.float32).reshape(-1, dim)
    rows = np.arange(len(points)).reshape(clients, samples)
    return [ExampleRows(points, points, index) for index in rows]


def _scattered(rng: np.random.Generator, points: int, dim: int, radius: float) -> Array:
    """Draw points with mean 0 and mean squared norm radius²."""
    drawn = rng.standard_normal((points, dim))
    if not radius:
        return np.zeros((points, dim))
    drawn -= drawn.mean(0)
    return np.asarray(drawn * (radius / np.sqrt(np.square(drawn).sum(1).mean())))
