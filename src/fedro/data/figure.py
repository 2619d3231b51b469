"""Draw a federation: how many examples and classes each client has."""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from fedro.common.figures import STYLE
from fedro.common.palette import BLUE, GREY, RED
from fedro.data.federation import Federation


def federation_figure(federation: Federation) -> Figure:
    """Draw the examples and classes per client, each from the client with most to the least."""
    panels = 2 if federation.classes else 1
    with plt.rc_context(STYLE):
        figure, grid = plt.subplots(1, panels, figsize=(4.2 * panels, 3.2), squeeze=False)
        axes = list(grid[0])
        order = np.argsort(-federation.sizes, kind="stable")
        _draw_steps(axes[0], federation.sizes[order], BLUE, "training")
        _draw_steps(axes[0], federation.test_sizes[order], RED, "test")
        axes[0].set_ylabel("samples")
        axes[0].legend()
        if federation.classes:
            _draw_steps(axes[1], -np.sort(-federation.classes_per_client), BLUE, "")
            axes[1].axhline(federation.classes, color=GREY, ls="--", lw=1)
            axes[1].set_ylabel(f"classes (of {federation.classes})")
        for panel in axes:
            panel.set_xlabel("clients, from most to least")
            panel.set_ylim(bottom=0)
        title = f"{federation.name}, {federation.clients} clients ({federation.partition})"
        figure.suptitle(title, x=0.02, ha="left")
        figure.tight_layout()
    return figure


def _draw_steps(axes: Axes, values: NDArray[np.int64], color: str, label: str) -> None:
    edges = np.arange(len(values) + 1)
    axes.stairs(values, edges, fill=True, color=color, alpha=0.75, label=label)
