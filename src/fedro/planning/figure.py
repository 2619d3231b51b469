"""The figure of a plan: κ and b̂/n̂ over n̂."""

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from fedro.common.figures import STYLE, plain_ticks
from fedro.common.palette import BLUE, GREY, RED
from fedro.planning.planner import Plan


def plan_figure(chosen: Plan, points: int = 300) -> Figure:
    """Draw κ and b̂/n̂ over n̂, with the chosen point and the paper's thresholds."""
    n, first = chosen.problem.population, chosen.n_min
    last = min(n, max(10 * chosen.sampled, 4 * (chosen.n_th or 1), first + 10))
    sizes = sorted({*np.geomspace(first, last, points).astype(int).tolist(), chosen.sampled})
    safe = [(size, *pair) for size in sizes if (pair := chosen.at(size)) is not None]
    sampled, tolerated, kappa = (np.array(column) for column in zip(*safe, strict=True))
    with plt.rc_context(STYLE):
        figure, (upper, lower) = plt.subplots(2, 1, sharex=True, figsize=(7.2, 5.6))
        _kappa_panel(upper, chosen, sampled, kappa)
        _fraction_panel(lower, chosen, sampled, tolerated / sampled)
        lower.set_xscale("log")
        plain_ticks(lower.xaxis)
        lower.set_xlabel("clients sampled each round, n̂")
        figure.suptitle(
            f"{chosen.clients} clients, {chosen.byzantine} Byzantine, {chosen.rounds} rounds, "
            f"confidence {chosen.confidence:g}",
            x=0.02,
            ha="left",
        )
        figure.tight_layout()
    return figure


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
    axes.axhline(chosen.byzantine / chosen.problem.population, color=GREY, ls="--", lw=1)
    axes.annotate(
        "b/n",
        (0, chosen.byzantine / chosen.problem.population),
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
