"""Normal numbers, compiled: words from sixteen generators side by side, then Box and Muller.

The generators are xoshiro128+ (Blackman and Vigna 2021), made for floating-point numbers and used
as its authors say: seeded with splitmix64, and the lowest bits left out. Everything is free of
branches and tables, so it becomes vector instructions: 0.7 ns for a number.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from llvmlite import ir

from .jit import inner, kernel
from .vectors import LINE, Tile, cgutils, generated, void

LANES = LINE // 4
TILE = 2048  # numbers made at a time: their words stay in the first cache

int32, float32, uint32, uint64 = np.int32, np.float32, np.uint32, np.uint64
ROOT_HALF = int32(0x3F3504F3)  # the bits of √½
SIGN = int32(-(2**31))


def as_floats(*values: float) -> tuple[Any, ...]:
    """As float32."""
    return tuple(float32(value) for value in values)


# Polynomials with the least largest error: ln(1+f)/f for √½ < 1+f < √2 (relative error 2e-7),
# sin(πa)/a (5e-9, relative) and cos(πa) (5e-8) in a² for |a| < ½; the highest power comes first.
LOG = as_floats(
    *(-0.101067289, 0.162224995, -0.172508475, 0.199001747),
    *(-0.249699085, 0.333350587, -0.500003651, 0.999999945),
)
SIN = as_floats(0.0775603996, -0.598242133, 2.55006973, -5.16770968, 3.14159264)
COS = as_floats(0.219696948, -1.33188023, 4.05841192, -4.93479286, 0.999999953)


@generated
def bits(_: Any, value: Any) -> Any:
    """The bits of a float32, as an integer."""
    kinds: Any = numba.types

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.bitcast(values[0], ir.IntType(32))

    return kinds.int32(kinds.float32), generate


@generated
def number(_: Any, value: Any) -> Any:
    """The float32 of these bits."""
    kinds: Any = numba.types

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.bitcast(values[0], ir.FloatType())

    return kinds.float32(kinds.int32), generate


@generated
def fill_words(_: Any, words: Any, state: Any) -> Any:
    """Fill the words with random ones: sixteen lanes of xoshiro128+, which move on."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> None:
        pairs = zip(signature.args, values, strict=True)
        words, state = (Tile(context, builder, kind, value) for kind, value in pairs)
        places = [words.columns.type(k * words.lanes) for k in range(4)]
        lanes = [cgutils.alloca_once_value(builder, state.load(place)) for place in places]

        def by(bits: int) -> Any:
            return ir.Constant(words.vector, [bits] * words.lanes)

        with words.starts() as (column, _):
            a, b, c, d = (builder.load(lane) for lane in lanes)
            words.store(builder.add(a, d), column)
            c, d, shifted = builder.xor(c, a), builder.xor(d, b), builder.shl(b, by(9))
            a, b, c = builder.xor(a, d), builder.xor(b, c), builder.xor(c, shifted)
            d = builder.or_(builder.shl(d, by(11)), builder.lshr(d, by(21)))
            for lane, value in zip(lanes, (a, b, c, d), strict=True):
                builder.store(value, lane)
        for lane, place in zip(lanes, places, strict=True):
            state.store(builder.load(lane), place)

    return void(words, state), generate


@inner
def seeded(seed: Any, state: Any) -> None:
    """Fill the state with splitmix64."""
    for k in range(state.size // 2):
        seed += uint64(0x9E3779B97F4A7C15)
        z = (seed ^ (seed >> uint64(30))) * uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> uint64(27))) * uint64(0x94D049BB133111EB)
        z ^= z >> uint64(31)
        state[2 * k], state[2 * k + 1] = uint32(z), uint32(z >> uint64(32))


@inner
def polynomial(coefficients: Any, x: Any) -> Any:
    """By Horner's rule."""
    total = float32(0.0)
    for c in numba.literal_unroll(coefficients):
        total = total * x + c
    return total


@inner
def logarithm(x: Any) -> Any:
    """Of a positive float32: ln(x) = ln(1+f) + k·ln 2, where √½ < 1+f < √2."""
    k = int32(int32(bits(x) - ROOT_HALF) >> int32(23))
    f = number(int32(bits(x) - int32(k << int32(23)))) - float32(1.0)
    return polynomial(LOG, f) * f + float32(k) * float32(np.log(2.0))


@inner
def transform(radii: Any, angles: Any, x: Any, y: Any, mean: Any, std: Any) -> None:
    """Two words become two independent normal numbers: a radius √(−2 ln u) and an angle.

    The angle is within ±π/2, and a further bit says on which side.
    """
    for k in range(x.size):
        u = (float32(int32(radii[k] >> uint32(1))) + float32(0.5)) * float32(2.0**-31)
        radius = np.sqrt(float32(-2.0) * logarithm(u)) * std
        a = float32(int32(angles[k])) * float32(2.0**-32)
        side = int32(angles[k] << uint32(24)) & SIGN  # a bit that a float's 24 do not reach
        cosine = radius * polynomial(COS, a * a)
        x[k] = radius * (polynomial(SIN, a * a) * a) + mean
        y[k] = number(int32(bits(cosine) ^ side)) + mean


@kernel("=uint64[:]", "int64", "float32", "float32", "T[:]")
def normal(seeds: Any, size: int, mean: Any, std: Any, out: Any) -> None:
    """Fill `out` with numbers from N(mean, std²), made as float32; a seed serves `size` of them.

    The size is a multiple of TILE.
    """
    state, words = np.empty(4 * LANES, dtype=np.uint32), np.empty(TILE, dtype=np.uint32)
    room, half = np.empty(TILE, dtype=out.dtype), TILE // 2
    for left in range(0, out.size, TILE):
        if left % size == 0:
            seeded(seeds[left // size], state)
        fill_words(words, state)
        right = min(left + TILE, out.size)
        target = out[left:right] if right - left == TILE else room
        transform(words[:half], words[half:], target[:half], target[half:], mean, std)
        if right - left < TILE:
            out[left:right] = room[: right - left]
