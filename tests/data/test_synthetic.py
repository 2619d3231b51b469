"""The synthetic problem has the constants that it promises."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedro.data import make_federation, spread


@given(
    clients=st.integers(2, 5),
    samples=st.integers(2, 12),
    dim=st.integers(1, 4),
    sigma=st.sampled_from([0.0, 0.1, 1.0, 30.0]),
    zeta=st.sampled_from([0.0, 0.1, 1.0, 30.0]),
    seed=st.integers(0, 99),
)
def test_synthetic_moments_are_exact(
    clients: int, samples: int, dim: int, sigma: float, zeta: float, seed: int
) -> None:
    text = f"synthetic(dim={dim}, samples={samples}, sigma={sigma}, zeta={zeta})"
    federation = make_federation(text, clients=clients, seed=seed)
    problem = federation.problem
    assert problem is not None
    assert (problem["sigma"], problem["zeta"], problem["L"]) == (sigma, zeta, 1.0)
    close = {"rel": 1e-5, "abs": 1e-10 + 1e-6 * (sigma + zeta + 1) ** 2}
    means = []
    for i, center in enumerate(problem["centers"].double()):
        for x, y in (federation.train(i), federation.test(i)):
            assert torch.equal(x, y)
            points = y.double()
            means.append(points.mean(0))
            assert means[-1].tolist() == pytest.approx(center.tolist(), **close)
            squared = (points - center).square().sum(1).mean()
            assert float(squared) == pytest.approx(sigma**2, **close)
    centers = torch.stack(means[::2])
    assert float((centers - centers.mean(0)).square().sum(1).mean()) == pytest.approx(
        zeta**2, **close
    )
    assert centers.mean(0).tolist() == pytest.approx(problem["optimum"].tolist(), **close)


def test_synthetic_gradients_have_the_constants_of_the_theorems() -> None:
    """σ² is the variance of a client's stochastic gradient, ζ² that of the clients' gradients."""
    federation = make_federation("synthetic(dim=4, sigma=2.0, zeta=3.0)", clients=6, seed=5)
    w = torch.randn(4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    gradients = []
    for i in range(6):
        each = w - federation.train(i).y.double()  # ∇ ½‖w − s‖²
        gradients.append(each.mean(0))
        assert float((each - gradients[-1]).square().sum(1).mean()) == pytest.approx(4, rel=1e-5)
    full = torch.stack(gradients)
    assert float((full - full.mean(0)).square().sum(1).mean()) == pytest.approx(9, rel=1e-5)


def test_synthetic_of_some_clients() -> None:
    federation = make_federation("synthetic(zeta=2.0)", clients=8)
    problem, few = federation.problem, federation.first(3).problem
    assert problem is not None
    assert few is not None
    assert spread(problem["centers"]) == pytest.approx(2.0, rel=1e-6)
    assert few["zeta"] == pytest.approx(spread(problem["centers"][:3]))
    assert torch.allclose(few["optimum"], problem["centers"][:3].mean(0))
    assert make_federation("synthetic", clients=4, partition="iid").problem is None
