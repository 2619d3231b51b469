"""Least squares with known constants: what the theorems say can be compared with what happens."""

import numpy as np
import torch

from fedro.common.checks import count, number
from fedro.common.streams import stream
from fedro.data.federation import Array, Federation, Rows
from fedro.data.problem import least_squares
from fedro.data.sources import PARTS, register


@register(owners=True)
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

    Up to float32 rounding: for every client, the mean of its training samples is its center and
    the mean of ‖s − center‖² is σ², and the same holds for its test samples; over *all* clients,
    the mean of ‖center_i − mean‖² is ζ². Some of them, such as the honest ones, have another ζ:
    ``spread(federation.problem["centers"][honest])``. Dealt to other clients (a partition other
    than owner) nothing of this is known, and ``problem`` is None.
    """
    clients = PARTS if clients is None else clients
    dim, samples = count("dim", dim, 1), count("samples", samples, 1)
    sigma = number("sigma", sigma, "from 0 to 1e15", lambda value: 0 <= value <= 1e15)
    zeta = number("zeta", zeta, "from 0 to 1e15", lambda value: 0 <= value <= 1e15)
    _check(clients, samples, sigma, zeta)
    place = stream(seed, "synthetic", 0).standard_normal(dim) / np.sqrt(dim)
    centers = place + _scattered(stream(seed, "synthetic", 1), clients, dim, zeta)
    known = least_squares(torch.from_numpy(centers.astype(np.float32)), sigma, zeta)
    sizes = samples, max(2, samples // 5) if sigma else 1
    train, test = (
        _points(known["centers"].numpy(), size, sigma, seed, which)
        for which, size in enumerate(sizes)
    )
    parts = list(zip(train, test, strict=True))
    return Federation("synthetic", parts, classes=0, scale=1.0, problem=known)


def _check(clients: int, samples: int, sigma: float, zeta: float) -> None:
    if sigma and samples < 2:
        raise ValueError(f"samples={samples}: one sample is its own mean; need 2, or sigma=0")
    if zeta and clients < 2:
        raise ValueError(f"clients={clients}: one client is its own mean; need 2, or zeta=0")


def _points(centers: Array, samples: int, sigma: float, seed: int, which: int) -> list[Rows]:
    clients, dim = centers.shape
    streams = [stream(seed, "synthetic", 2, which, client) for client in range(clients)]
    noise = np.stack([_scattered(rng, samples, dim, sigma) for rng in streams])
    points = (centers[:, None].astype(np.float64) + noise).astype(np.float32).reshape(-1, dim)
    rows = np.arange(len(points)).reshape(clients, samples)
    return [Rows(points, points, index) for index in rows]


def _scattered(rng: np.random.Generator, points: int, dim: int, radius: float) -> Array:
    """Points with mean 0 and mean squared norm radius²."""
    drawn = rng.standard_normal((points, dim))
    if not radius:
        return np.zeros((points, dim))
    drawn -= drawn.mean(0)
    return np.asarray(drawn * (radius / np.sqrt(np.square(drawn).sum(1).mean())))
