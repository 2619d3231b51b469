"""The fast convolution is a convolution: as near to float64 as PyTorch's own, and a drop-in."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from fedro.models.convolution import Conv2d, ToomCook, matrices

SHAPES = [  # batch, in, out, height, width, kernel, padding
    (8, 64, 128, 12, 12, 5, 0),
    (3, 64, 72, 13, 9, 5, 2),
    (2, 96, 64, 15, 16, 3, 0),
    (4, 64, 64, 8, 8, 3, 1),
    (4, 1, 64, 28, 28, 5, 0),
    (2, 3, 16, 9, 9, 3, 1),
]


def results(layer, x, g):
    x = x.detach().requires_grad_()
    y = layer(x)
    return [y, *torch.autograd.grad(y, (x, layer.weight, layer.bias), g)]


@pytest.mark.parametrize("shape", SHAPES)
def test_as_accurate_as_the_direct_way(shape):
    batch, c, o, height, width, kernel, padding = shape
    torch.manual_seed(0)
    layer = Conv2d(c, o, kernel, padding=padding)
    direct = nn.Conv2d(c, o, kernel, padding=padding)
    direct.load_state_dict(layer.state_dict())
    exact = nn.Conv2d(c, o, kernel, padding=padding).double()
    exact.load_state_dict({k: v.double() for k, v in layer.state_dict().items()})
    x = torch.randn(batch, c, height, width).relu()
    x = x.contiguous(memory_format=torch.channels_last)
    g = torch.randn(direct(x).shape)
    ours, theirs = results(layer, x, g), results(direct, x, g)
    for mine, plain, truth in zip(
        ours, theirs, results(exact, x.double(), g.double()), strict=True
    ):
        assert mine.shape == truth.shape
        error, usual = ((part - truth).norm() / truth.norm() for part in (mine, plain))
        assert error < max(5e-6, 4 * usual)
    again = results(layer, x, g)
    assert all(torch.equal(a, b) for a, b in zip(ours, again, strict=True))


def test_the_fast_way_is_taken_where_it_should_be(monkeypatch):
    taken = []
    real = ToomCook.apply
    monkeypatch.setattr(ToomCook, "apply", lambda *a: taken.append(1) or real(*a))
    x = torch.rand(1, 64, 12, 12)
    for layer, expected in [
        (Conv2d(64, 64, 5), True),
        (Conv2d(64, 64, 3, padding=1), True),
        (Conv2d(64, 32, 5), False),
        (Conv2d(64, 64, 5, stride=2), False),
        (Conv2d(64, 64, 5, dilation=2), False),
        (Conv2d(64, 64, 5, groups=64), False),
        (Conv2d(64, 64, 5, padding="same"), False),
        (Conv2d(64, 64, 5, padding=2, padding_mode="reflect"), False),
        (Conv2d(64, 64, (5, 3)), False),
        (Conv2d(64, 64, 5, padding=(1, 2)), False),
        (Conv2d(64, 64, 5, bias=False), True),
    ]:
        taken.clear()
        plain = nn.Conv2d.forward(layer, x)
        torch.testing.assert_close(layer(x), plain, rtol=1e-4, atol=1e-5)
        assert bool(taken) == expected
    with torch.autocast("cpu", torch.bfloat16):
        taken.clear()
        assert Conv2d(64, 64, 5)(x).dtype == torch.bfloat16
        assert not taken
    torch.testing.assert_close(Conv2d(64, 64, 5)(x[0]).shape, (64, 8, 8))


@pytest.mark.parametrize("kernel", [3, 5])
def test_the_matrices_are_exact_in_one_dimension_of_channels(kernel):
    """y = C[(A x)(B w)] for one channel is the definition of a convolution."""
    a, b, c = matrices(4, kernel)
    n = 4 + kernel - 1
    x, w = torch.randn(n, n), torch.randn(kernel, kernel)
    y = c @ ((a @ x.flatten()) * (b @ w.flatten()))
    expected = F.conv2d(x[None, None], w[None, None])[0, 0]
    torch.testing.assert_close(y.view(4, 4), expected, rtol=1e-4, atol=1e-4)
    assert len(a) < 16 * kernel**2 / 3
