"""Compile a function once, say so if it takes long, and live without a cache folder."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar

import numba
import numpy as np

F = TypeVar("F", bound=Callable[..., Any])

LOG = logging.getLogger("fedro")
PATIENCE = 1.0  # seconds of silence before the user is told what is going on
# "nnan" and "ninf" are left out on purpose: they would delete the tests for NaN and Inf.
FLAGS = {"reassoc", "contract", "nsz", "arcp"}
OPTIONS: dict[str, Any] = {
    "nogil": True,
    "fastmath": FLAGS,
    "error_model": "numpy",
    "boundscheck": False,
}

SOURCES = sorted(Path(__file__).parent.rglob("*.py"))
STAMP = sha256(b"".join(path.read_bytes() for path in SOURCES)).hexdigest()[:12]

_lock = threading.Lock()


def inner(function: F) -> F:
    """A helper that kernels of the same file call; it is inlined into them."""
    return numba.njit(**OPTIONS)(function)  # type: ignore[no-any-return]


def literal(function: F) -> F:
    """Like `inner`, but computed as written: "reassoc" would make h·a − h·b into h·(a − b)."""
    return numba.njit(**{**OPTIONS, "fastmath": False})(function)  # type: ignore[no-any-return]


def kernel(*signature: str) -> Callable[[Callable[..., Any]], Kernel]:
    """Declare a compiled kernel; in `signature` the letter T stands for float32 or float64."""
    return lambda function: Kernel(function, signature)


class Kernel:
    """A function with one compiled version per floating type, made when that type first arrives."""

    def __init__(self, function: Callable[..., Any], signature: tuple[str, ...]) -> None:
        self.name = function.__name__
        self.signature = signature
        self.dispatcher = _dispatcher(function)
        self.ready: set[str] = set()

    def prepare(self, dtype: np.dtype[Any]) -> Callable[..., Any]:
        """Return the callable for this type, compiled or taken from the disk cache."""
        if dtype.name not in self.ready:
            with _lock, announced(f"compiling {self.name} for {dtype.name}"):
                self._compile(dtype.name)
        return self.dispatcher  # type: ignore[no-any-return]

    def _compile(self, name: str) -> None:
        if name in self.ready:  # another thread was faster
            return
        self.dispatcher.disable_compile(False)
        self.dispatcher.compile(tuple(_parse(part, name) for part in self.signature))
        self.dispatcher.disable_compile(True)  # a wrong argument type raises, it never compiles
        self.ready.add(name)


def _dispatcher(function: Callable[..., Any]) -> Any:
    """Cache on disk where possible: Numba raises when it finds no folder that it may write to.

    It looks for changes in the file of the function alone, and in this name.
    """
    function.__qualname__ = f"{function.__name__}_{STAMP}"
    try:
        return numba.njit(cache=True, **OPTIONS)(function)
    except RuntimeError as error:
        LOG.warning("kernels are compiled anew in every process: %s", error)
        return numba.njit(**OPTIONS)(function)


def _parse(part: str, name: str) -> Any:
    """Read 'T[:,:]', 'int64[:]', 'int64', …; a leading '=' marks a read-only array."""
    text = part.removeprefix("=").replace("T", name)
    scalar, _, axes = text.partition("[")
    base = getattr(numba.types, "boolean" if scalar == "bool" else scalar)
    if not axes:
        return base
    return numba.types.Array(base, axes.count(":"), "C", readonly=part.startswith("="))


@contextmanager
def announced(what: str, patience: float = PATIENCE) -> Iterator[None]:
    """Tell the user `what` is being done if the block takes longer than `patience` seconds."""
    timer = threading.Timer(patience, _say, (f"fedro: {what} (once per machine) ...",))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _say(message: str) -> None:
    LOG.info(message)
    if sys.stderr is not None and sys.stderr.isatty():
        print(message, file=sys.stderr)
