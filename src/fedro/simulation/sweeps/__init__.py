"""Many experiments: a grid in one TOML file, run side by side into one folder.

::

    base = "demo"                                 # a built-in experiment or a file; may be left out
    rule = ["mean", "nnm | trimmed_mean"]         # a list is an axis: every combination is run
    seed = [0, 1, 2]
    sampled = [11, 31]
    tolerated = [4, 10]
    zip = ["sampled", "tolerated"]                # lists that go together, first with first

Each combination has its run folder in the sweep's. What is finished is kept, what was cut goes on,
and a run that fails does not stop the others.
"""

from fedro.simulation.sweeps.grid import expand, read_sweep, varied, zipped
from fedro.simulation.sweeps.running import News, Outcome, carry_out, sweep

__all__ = ["News", "Outcome", "carry_out", "expand", "read_sweep", "sweep", "varied", "zipped"]
