"""The style of all Matplotlib figures, their colors, and how they are saved."""

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from fedro.common.atomic_files import whole_file

BLUE, RED, GREY = "#1f5fa8", "#c2402a", "#8a8f98"
STYLE: dict[Any, Any] = {
    "figure.figsize": (7.2, 4.2),
    "figure.dpi": 150,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "font.size": 10,
    "legend.frameon": False,
}


def save(figure: Figure, path: Path) -> Path:
    """Write the figure, whole or not at all, making the folder if need be."""
    known = figure.canvas.get_supported_filetypes()
    kind = path.suffix.removeprefix(".").lower()
    if kind not in known:
        raise ValueError(f"cannot draw to {path}: the name must end in one of .png, .svg, .pdf")
    try:
        with whole_file(path) as unfinished:
            figure.savefig(unfinished, format=kind, bbox_inches="tight")
    finally:
        plt.close(figure)
    return path


def plain_ticks(axis: Axis) -> None:
    """1, 2, 5, 10, 20 … on a logarithmic axis, as plain numbers."""
    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())
