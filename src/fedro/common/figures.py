"""The style of all Matplotlib figures, and how they are saved. Colors: `palette`."""

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from fedro.common.atomic_files import atomic_path

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
    """Write a figure atomically and close it; the folder is created if it does not exist.

    Raises:
        ValueError: The ending of the name is none that Matplotlib can write.
        CannotWriteError: The file cannot be written.
    """
    known = figure.canvas.get_supported_filetypes()
    kind = path.suffix.removeprefix(".").lower()
    if kind not in known:
        raise ValueError(f"cannot draw to {path}: the name must end in one of .png, .svg, .pdf")
    try:
        with atomic_path(path) as temporary:
            figure.savefig(temporary, format=kind, bbox_inches="tight")
    finally:
        plt.close(figure)
    return path


def plain_ticks(axis: Axis) -> None:
    """Label a logarithmic axis with 1, 2, 5, 10, 20 … as plain numbers."""
    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())
