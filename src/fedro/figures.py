"""The look of all figures, and the plan's own."""

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from numpy.typing import NDArray

from fedro.planning import Plan
from fedro.whole import whole_file

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


def plan_figure(chosen: Plan, points: int = 300) -> Figure:
    """κ and b̂/n̂ over n̂, with the chosen point and where more clients hardly help."""
    n, first = chosen.setting.population, chosen.n_min
    last = min(n, max(10 * chosen.sampled, 4 * (chosen.n_th or 1), first + 10))
    sizes = sorted({*np.geomspace(first, last, points).astype(int).tolist(), chosen.sampled})
    found = [(size, at) for size in sizes if (at := chosen.at(size)) is not None]
    sampled = np.array([size for size, _ in found])
    tolerated = np.array([at[0] for _, at in found])
    kappa = np.array([at[1] for _, at in found])
    with plt.rc_context(STYLE):
        figure, (upper, lower) = plt.subplots(2, 1, sharex=True, figsize=(7.2, 5.6))
        _kappa_panel(upper, chosen, sampled, kappa)
        _fraction_panel(lower, chosen, sampled, tolerated / sampled)
        lower.set_xscale("log")
        plain_ticks(lower.xaxis)
        lower.set_xlabel("clients sampled each round, n̂")
        figure.suptitle(
            f"{chosen.clients} clients, {chosen.byzantine} bad, {chosen.rounds} rounds, "
            f"confidence {chosen.confidence:g}",
            x=0.02,
            ha="left",
        )
        figure.tight_layout()
    return figure


def plain_ticks(axis: Axis) -> None:
    """1, 2, 5, 10, 20 … on a logarithmic axis, as plain numbers."""
    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def _kappa_panel(axes: Axes, chosen: Plan, sampled: NDArray[Any], kappa: NDArray[Any]) -> None:
    axes.plot(sampled, kappa, color=BLUE, lw=1.6)
    axes.axhline(chosen.kappa_everyone, color=GREY, ls="--", lw=1)
    axes.annotate(
        f"everyone: κ = {chosen.kappa_everyone:.3g}",
        (0, chosen.kappa_everyone),
        xycoords=("axes fraction", "data"),
        xytext=(4, 4),
        textcoords="offset points",
        color=GREY,
    )
    label = f"n̂ = {chosen.sampled}, b̂ = {chosen.tolerated}\nκ = {chosen.kappa:.3g}"
    axes.plot([chosen.sampled], [chosen.kappa], "o", color=RED, ms=7, zorder=3)
    axes.annotate(
        label,
        (chosen.sampled, chosen.kappa),
        xytext=(10, 14),
        textcoords="offset points",
        color=RED,
        weight="bold",
    )
    if kappa.min() > 0:
        axes.set_yscale("log")
        plain_ticks(axes.yaxis)
    axes.set_ylabel(f"error factor κ\n({chosen.rule})")


def _fraction_panel(
    axes: Axes, chosen: Plan, sampled: NDArray[Any], fraction: NDArray[Any]
) -> None:
    axes.plot(sampled, fraction, color=BLUE, lw=1.6)
    axes.plot([chosen.sampled], [chosen.tolerated / chosen.sampled], "o", color=RED, ms=7, zorder=3)
    axes.axhline(0.5, color=GREY, lw=1)
    axes.axhline(chosen.byzantine / chosen.setting.population, color=GREY, ls="--", lw=1)
    axes.annotate(
        "b/n",
        (0, chosen.byzantine / chosen.setting.population),
        xycoords=("axes fraction", "data"),
        xytext=(4, 4),
        textcoords="offset points",
        color=GREY,
    )
    for size, name in ((chosen.n_th, "n̂_th"), (chosen.n_opt, "n̂_opt")):
        if size is not None and sampled[0] <= size <= sampled[-1]:
            axes.axvline(size, color=GREY, ls=":", lw=1)
            axes.annotate(f"{name} ", (size, 0.46), color=GREY, ha="right")
    axes.set_ylim(0, 0.53)
    axes.set_ylabel("tolerated share b̂/n̂")
