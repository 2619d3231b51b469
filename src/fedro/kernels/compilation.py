"""Compile kernels with Numba: once per machine if a cache folder is writable."""

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
SECONDS_BEFORE_ANNOUNCEMENT = 1.0
# "nnan" and "ninf" are left out on purpose: they would delete the tests for NaN and Inf.
FASTMATH = {"reassoc", "contract", "nsz", "arcp"}
OPTIONS: dict[str, Any] = {
    "nogil": True,
    "fastmath": FASTMATH,
    "error_model": "numpy",
    "boundscheck": False,
}

# Numba's cache on disk notices changes only in the file of a kernel, not in the files of the
# functions that it calls. This hash of all sources is therefore part of a kernel's name.
SOURCES = sorted(Path(__file__).parent.rglob("*.py"))
STAMP = sha256(b"".join(path.read_bytes() for path in SOURCES)).hexdigest()[:12]

_lock = threading.Lock()


def inner(function: F) -> F:
    """Declare a function that kernels call; it is compiled with them."""
    return numba.njit(**OPTIONS)(function)  # type: ignore[no-any-return]


def literal(function: F) -> F:
    """Like `inner`, but computed as written: "reassoc" would make h·a − h·b into h·(a − b)."""
    return numba.njit(**{**OPTIONS, "fastmath": False})(function)  # type: ignore[no-any-return]


def kernel(*signature: str) -> Callable[[Callable[..., Any]], Kernel]:
    """Declare a kernel. In `signature`, T stands for float32 or float64, and '=' for read-only."""
    return lambda function: Kernel(function, signature)


class Kernel:
    """A function with one compiled version per floating type, made when that type first arrives."""

    def __init__(self, function: Callable[..., Any], signature: tuple[str, ...]) -> None:
        self.name = function.__name__
        self.function = function
        self.signature = signature
        self.dispatcher = _dispatcher(function)
        self.compiled: set[str] = set()

    def prepare(self, dtype: np.dtype[Any]) -> Callable[..., Any]:
        """Return the callable for this type; compile it, or read it from the cache, if needed."""
        if dtype.name not in self.compiled:
            with _lock, announce_if_slow(f"compiling {self.name} for {dtype.name}"):
                self._compile(dtype.name)
        return self.dispatcher  # type: ignore[no-any-return]

    def _compile(self, name: str) -> None:
        if name in self.compiled:  # another thread was faster
            return
        types = tuple(_numba_type(part, name) for part in self.signature)
        self.dispatcher.disable_compile(False)
        try:
            self.dispatcher.compile(types)
        except OSError as error:  # of the cache on the disk, which is not needed
            LOG.warning("%s is compiled without a cache: %s", self.name, error)
            self.dispatcher = numba.njit(**OPTIONS)(self.function)
            for other in {*self.compiled, name}:
                self.dispatcher.compile(tuple(_numba_type(part, other) for part in self.signature))
        self.dispatcher.disable_compile(True)  # a wrong argument type raises, it never compiles
        self.compiled.add(name)


def _dispatcher(function: Callable[..., Any]) -> Any:
    """Numba's wrapper of the function; without a cache where Numba finds no writable folder."""
    function.__qualname__ = f"{function.__name__}_{STAMP}"
    try:
        return numba.njit(cache=True, **OPTIONS)(function)
    except RuntimeError as error:
        LOG.warning("every process compiles the kernels anew: %s", error)
        return numba.njit(**OPTIONS)(function)


def _numba_type(part: str, name: str) -> Any:
    """The type that 'T[:,:]', '=int64[:]' or 'int64' describes, with `name` for T."""
    text = part.removeprefix("=").replace("T", name)
    scalar, _, axes = text.partition("[")
    base = getattr(numba.types, "boolean" if scalar == "bool" else scalar)
    if not axes:
        return base
    return numba.types.Array(base, axes.count(":"), "C", readonly=part.startswith("="))


@contextmanager
def announce_if_slow(task: str, after: float = SECONDS_BEFORE_ANNOUNCEMENT) -> Iterator[None]:
    """Tell the user about the task if the block takes longer than `after` seconds."""
    timer = threading.Timer(after, _announce, (f"fedro: {task} (once per machine) ...",))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _announce(message: str) -> None:
    LOG.info(message)
    if sys.stderr is not None and sys.stderr.isatty():
        print(message, file=sys.stderr)
