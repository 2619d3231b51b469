"""A convolution for training on the CPU with fewer multiplications and the same accuracy.

Toom-Cook convolution (Winograd's is a case of it) is bilinear: y = C[(A·x) ⊙ (B·w)]. It evaluates
a tile of n×n inputs and an r×r kernel at n² points each, multiplies them there (products over
channels are matrix products), and interpolates m×m outputs, n = m + r − 1. A 5×5 kernel takes 78
products where the direct way takes 400. The points decide the accuracy: with roots of unity among
them it equals that of the direct way.
"""

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

INFINITY = None
POINTS = (0, INFINITY, 1, -1, 1j, -1j, 2, -0.5)
CONJUGATE = (0, 1, 2, 3, 5, 4, 6, 7)  # the position of each point's conjugate
TILE = 4  # m
MIN_CHANNELS = 64  # of inputs and outputs: with fewer, the direct way is as fast


class Matrices(NamedTuple):
    """The matrices A, B and C for tiles of one size."""

    inputs: Tensor  # A (products, n²)
    kernel: Tensor  # B (products, r²)
    outputs: Tensor  # C (m², products)


@lru_cache
def matrices(tile: int, kernel: int) -> Matrices:
    """Compute A, B and C for m×m outputs of an r×r kernel."""
    size = tile + kernel - 1

    def powers(count: int) -> NDArray[np.complex128]:
        last = np.eye(count)[-1]
        rows = [last if z is INFINITY else np.power(z, np.arange(count)) for z in POINTS[:size]]
        return np.array(rows, dtype=np.complex128)

    sides = np.linalg.inv(powers(size)).T, powers(kernel), powers(tile)
    rows: list[tuple[Any, Any, Any]] = []
    for i in range(size):
        for j in range(size):
            a, b, c = (np.kron(side[i], side[j]) for side in sides)
            conjugate = CONJUGATE[i], CONJUGATE[j]
            if conjugate == (i, j):
                rows.append((a.real, b.real, c.real))
            elif conjugate > (i, j):  # both at once: 2·Re(c·a·b), by three real products
                rows.append((a.real, b.real, 2 * (c.real + c.imag)))
                rows.append((a.imag, b.imag, 2 * (c.imag - c.real)))
                rows.append((a.real + a.imag, b.real + b.imag, -2 * c.imag))
    a, b, c = (np.array(part) for part in zip(*rows, strict=True))
    balance = np.sqrt(np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1))[:, None]
    parts = (a / balance, b * balance, c.T)
    return Matrices(*(torch.from_numpy(part).float().contiguous() for part in parts))


class ToomCook(torch.autograd.Function):
    """Convolve x (N, c, H, W) with w (o, c, r, r); the output must be a whole number of tiles."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor) -> Tensor:
        """Transform to points, multiply over channels, and interpolate; y is channels-last."""
        (batch, c, height, width), (o, _, r, _) = x.shape, w.shape
        constants, n = matrices(TILE, r), TILE + r - 1
        products = len(constants.inputs)
        cut = (
            x.permute(2, 3, 0, 1).unfold(0, n, TILE).unfold(1, n, TILE)
        )  # (tall, wide, N, c, n, n)
        tall, wide = cut.shape[:2]
        tiles = cut.permute(4, 5, 0, 1, 2, 3).reshape(n * n, -1)
        points = (constants.inputs @ tiles).view(products, -1, c)
        kernel = (constants.kernel @ w.reshape(o * c, -1).T.contiguous()).view(products, o, c)
        y = constants.outputs @ torch.bmm(points, kernel.mT).view(products, -1)
        ctx.save_for_backward(points, kernel)
        ctx.sizes = batch, c, height, width, o, r, tall, wide
        y = y.view(TILE, TILE, tall, wide, batch, o).permute(4, 2, 0, 3, 1, 5)
        return y.reshape(batch, tall * TILE, wide * TILE, o).permute(0, 3, 1, 2)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Tensor | None, Tensor]:
        """Apply the transposed matrices in reverse order."""
        (g,) = gradients
        points, kernel = ctx.saved_tensors
        batch, c, height, width, o, r, tall, wide = ctx.sizes
        constants, n = matrices(TILE, r), TILE + r - 1
        products = len(points)
        g = g.permute(2, 3, 0, 1).reshape(tall, TILE, wide, TILE, batch, o)
        g = constants.outputs.T @ g.permute(1, 3, 0, 2, 4, 5).reshape(TILE * TILE, -1)
        g = g.view(products, -1, o)
        dw = constants.kernel.T @ torch.bmm(g.mT, points).view(products, -1)
        dw = dw.T.reshape(o, c, r, r)
        if not ctx.needs_input_grad[0]:
            return None, dw
        parts = constants.inputs.T @ torch.bmm(g, kernel).view(products, -1)
        parts = parts.view(n, n, tall, wide, batch, c).permute(2, 3, 4, 0, 1, 5)
        dx = parts.new_zeros(batch, height, width, c)
        for i in range(tall):
            for j in range(wide):
                dx[:, i * TILE : i * TILE + n, j * TILE : j * TILE + n] += parts[i, j]
        return dx.permute(0, 3, 1, 2), dw


class Conv2d(nn.Conv2d):
    """A drop-in for `nn.Conv2d` that is faster on the CPU for many channels.

    It has the same parameters, and the same values to a relative error of 1e-6.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Convolve in whichever way is faster."""
        if not self._is_plain(x):
            return super().forward(x)
        if not self._is_worth_it() or min(x.shape[2:]) < self.kernel_size[0]:
            return F.conv2d(x, channels_last(self.weight), self.bias, padding=self.padding)
        padding, r = self.padding[0], self.kernel_size[0]
        assert isinstance(padding, int)
        height, width = (side + 2 * padding - r + 1 for side in x.shape[2:])
        right, bottom = -width % TILE, -height % TILE  # up to whole tiles
        if padding or right or bottom:
            x = F.pad(x, (padding, padding + right, padding, padding + bottom))
        y: Tensor = ToomCook.apply(x, self.weight)  # type: ignore[no-untyped-call]
        y = y[:, :, :height, :width]
        return y if self.bias is None else y + self.bias[:, None, None]

    def _is_plain(self, x: Tensor) -> bool:
        """Whether this is float32 on the CPU with usual stride, dilation, groups and padding."""
        usual = (self.stride, self.dilation, self.groups) == ((1, 1), (1, 1), 1)
        zeros = self.padding_mode == "zeros" and not isinstance(self.padding, str)
        full = x.dtype == torch.float32 and not torch.is_autocast_enabled("cpu")
        return usual and zeros and full and x.device.type == "cpu" and x.dim() == 4

    def _is_worth_it(self) -> bool:
        many = min(self.in_channels, self.out_channels) >= MIN_CHANNELS
        square = len({*self.kernel_size}) == len({*self.padding}) == 1
        return many and square and self.kernel_size[0] in (3, 5)


def channels_last(weight: Tensor) -> Tensor:
    """Give a weight strides that oneDNN recognizes as channels-last, even with one channel.

    With the strides of a contiguous weight oneDNN's backward pass takes five times as long.
    """
    o, c, r, s = weight.shape
    return weight.permute(0, 2, 3, 1).reshape(-1).view(o, r, s, c).permute(0, 3, 1, 2)
