"""Sweeps: many experiments from one TOML file, run side by side into one folder.

::

    base = "demo"                                 # a built-in experiment or a file; optional
    rule = ["mean", "nnm | trimmed_mean"]         # a list is an axis: every combination is run
    seed = [0, 1, 2]
    sampled = [11, 31]
    tolerated = [4, 10]
    zip = ["sampled", "tolerated"]                # these lists go together, first with first

Each combination has a run folder of its own inside the folder of the sweep. A sweep skips finished
runs, resumes interrupted ones, and continues when a run fails.
"""

from fedro.simulation.sweeps.expansion import expand, read_sweep, to_sweep_values, varied_keys
from fedro.simulation.sweeps.processes import Outcome, SweepEvent, run_sweep, sweep

__all__ = [
    "Outcome",
    "SweepEvent",
    "expand",
    "read_sweep",
    "run_sweep",
    "sweep",
    "to_sweep_values",
    "varied_keys",
]
