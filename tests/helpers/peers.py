"""Thin adapters to ByzFL 0.0.11 and ByzPy 0.1.4: `byzfl_rule(name, b)(x)`, `byzpy_rule(…)(x)`.

Names are ours. `x` is a float array or a torch tensor (n, d); the answer is a float64 array, (d,)
for a rule and (m, d) for a mixer. The peer works on a copy, in the precision it is given; ByzFL in
the kind of array it is given (a tensor becomes float32 there), ByzPy always in torch.
"""

from __future__ import annotations

import importlib
import importlib.util
import itertools
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

Peer = Callable[[Any], np.ndarray]


def byzfl(module: str = "aggregators") -> ModuleType:
    """Import `byzfl.<module>` without byzfl/__init__.py (it needs torchvision and seaborn)."""
    if "byzfl" not in sys.modules:
        spec = importlib.util.find_spec("byzfl")  # finds, does not run it
        if spec is None or spec.submodule_search_locations is None:
            raise ImportError("pip install byzfl==0.0.11 --no-deps")
        stub = ModuleType("byzfl")
        stub.__path__ = list(spec.submodule_search_locations)
        sys.modules["byzfl"] = stub
    return importlib.import_module(f"byzfl.{module}")


# name -> (class, name of the option that takes b, or None)
BYZFL = {
    "mean": ("Average", None),
    "median": ("Median", None),
    "trimmed_mean": ("TrMean", "f"),
    "geometric_median": ("GeometricMedian", None),
    "krum": ("Krum", "f"),
    "multi_krum": ("MultiKrum", "f"),
    "centered_clipping": ("CenteredClipping", None),
    "mda": ("MDA", "f"),
    "monna": ("MoNNA", "f"),
    "meamed": ("Meamed", "f"),
    "caf": ("CAF", "f"),
    "smea": ("SMEA", "f"),
    "nnm": ("NNM", "f"),
    "bucketing": ("Bucketing", None),
    "clip": ("Clipping", None),
    "arc": ("ARC", "f"),
}


def byzfl_rule(name: str, b: int, **options: Any) -> Peer:
    """ByzFL's rule; options in its own words (nu, T, L, tau, idx, s, c)."""
    kind, takes_b = BYZFL[name]
    make = getattr(byzfl(), kind)
    settings = {takes_b: int(b), **options} if takes_b else options

    def call(x: Any) -> np.ndarray:
        return _plain(make(**settings)(_copy(x)))

    return call


# name -> (module, class, name of the option that takes b, or None)
BYZPY = {
    "median": ("aggregators.coordinate_wise", "CoordinateWiseMedian", None),
    "trimmed_mean": ("aggregators.coordinate_wise", "CoordinateWiseTrimmedMean", "f"),
    "meamed": ("aggregators.coordinate_wise", "MeanOfMedians", "f"),
    "geometric_median": ("aggregators.geometric_wise", "GeometricMedian", None),
    "krum": ("aggregators.geometric_wise", "Krum", "f"),
    "multi_krum": ("aggregators.geometric_wise", "MultiKrum", "f"),
    "mda": ("aggregators.geometric_wise", "MinimumDiameterAveraging", "f"),
    "monna": ("aggregators.geometric_wise", "MoNNA", "f"),
    "smea": ("aggregators.geometric_wise", "SMEA", "f"),
    "caf": ("aggregators.norm_wise", "CAF", "f"),
    "centered_clipping": ("aggregators.norm_wise", "CenteredClipping", None),
    "cge": ("aggregators.norm_wise", "ComparativeGradientElimination", "f"),
    "nnm": ("pre_aggregators", "NearestNeighborMixing", "f"),
    "bucketing": ("pre_aggregators", "Bucketing", None),
    "clip": ("pre_aggregators", "Clipping", None),
    "arc": ("pre_aggregators", "ARC", "f"),
}


def byzpy_rule(name: str, b: int, **options: Any) -> Peer:
    """ByzPy's rule in this process; options in its own words (q, tol, c_tau, M, init, perm, …)."""
    module, kind, takes_b = BYZPY[name]
    make = getattr(importlib.import_module(f"byzpy.{module}"), kind)
    settings = {takes_b: int(b), **options} if takes_b else options

    def call(x: Any) -> np.ndarray:
        if name == "multi_krum":
            settings.setdefault("q", len(x) - b)
        peer = make(**settings)
        rows = list(_tensor(x))
        return _plain(peer.pre_aggregate(rows) if "pre" in module else peer.aggregate(rows))

    return call


def _is_tensor(x: Any) -> bool:
    return type(x).__module__.startswith("torch")


def _tensor(x: Any) -> Any:
    """A torch copy: ByzPy calls torch whatever it is given, and most of it refuses NumPy arrays."""
    import torch

    return x.clone() if _is_tensor(x) else torch.tensor(np.asarray(x))


def _copy(x: Any) -> Any:
    """Its own copy: ByzFL's clipping and ARC write into what they are given."""
    return x.clone() if _is_tensor(x) else np.array(x)


def _plain(result: Any) -> np.ndarray:
    """A float64 array from an array, a tensor or a list of either."""
    if isinstance(result, list):
        return np.stack([_plain(row) for row in result])
    return np.asarray(result.double() if _is_tensor(result) else result, dtype=np.float64)


# --- comparison with the references ----------------------------------------------------------

SIZES = [(5, 1, 3), (8, 3, 10), (9, 4, 4), (11, 2, 50), (12, 4, 200)]
OURS: dict[str, dict[str, Any]] = {
    "centered_clipping": {"tau": 2.0, "iterations": 3},
    "clip": {"limit": 2.0},
    "caf": {"literal": True},
}
BYZFL_OPTIONS: dict[str, dict[str, Any]] = {
    "centered_clipping": {"L": 3, "tau": 2.0},
    "monna": {"idx": 1},
    "clip": {"c": 2.0},
    "bucketing": {"s": 2},
}
BYZPY_OPTIONS: dict[str, dict[str, Any]] = {
    "centered_clipping": {"M": 3, "c_tau": 2.0, "init": "zero"},
    "monna": {"reference_index": 1},
    "clip": {"threshold": 2.0},
    "bucketing": {"bucket_size": 2},
}


def disagreements(peer: str, name: str, seeds: int = 5) -> tuple[int, int, float]:
    """On Gaussian float64 rows: answers that differ from the reference, of how many, the worst."""
    import oracle

    rule, table = {"byzfl": (byzfl_rule, BYZFL_OPTIONS), "byzpy": (byzpy_rule, BYZPY_OPTIONS)}[peer]
    errors = []
    for (n, b, d), seed in itertools.product(SIZES, range(seeds)):
        x = oracle.CASES["gaussian"](n, d, b, seed)
        np.random.seed(seed)  # ByzFL draws its permutation from the global state
        order = np.random.permutation(n)
        options = dict(table.get(name, {}))
        if (peer, name) == ("byzpy", "bucketing"):
            options["perm"] = order
        np.random.seed(seed)
        answer = rule(name, b, **options)(x)
        errors.append(min(float(abs(answer - z).max()) for z in _accepted(name, x, b, order)))
    return sum(e > 1e-6 for e in errors), len(errors), max(errors)


def _accepted(name: str, x: np.ndarray, b: int, order: np.ndarray) -> list[np.ndarray]:
    """What the references allow."""
    import oracle

    if name in oracle.OUTPUTS:
        return oracle.OUTPUTS[name](x, b)
    extra = {"monna": {"reference": x[1]}, "bucketing": {"permutation": order}}
    options = {**OURS.get(name, {}), **extra.get(name, {})}
    return [{**oracle.RULES, **oracle.MIXERS}[name](x, b, **options)]


if __name__ == "__main__":
    for peer, table in (("byzfl", BYZFL), ("byzpy", BYZPY)):
        for name in table.keys() - {"cge"}:
            differ, total, worst = disagreements(peer, name)
            print(f"{peer} {name:18s} {differ:3d} of {total} differ, worst {worst:.1e}", flush=True)
