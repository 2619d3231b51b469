"""The figure of a plan: κ and b̂/n̂ over n̂."""

import math
from collections.abc import Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from fedro.common.figures import STYLE, plain_ticks
from fedro.common.palette import BLUE, GREY, RED
from fedro.planning.comparison import Scenario
from fedro.planning.planner import Plan, SampleSize


def plan_figure(chosen: Plan, points: int = 300) -> Figure:
    """Draw κ and b̂/n̂ over n̂, with the chosen point and the paper's thresholds."""
    n, first = chosen.problem.population, chosen.n_min
    last = min(n, max(10 * chosen.sampled, 4 * (chosen.n_th or 1), first + 10))
    sizes = sorted({*np.geomspace(first, last, points).astype(int).tolist(), chosen.sampled})
    safe = [size for size in map(chosen.at, sizes) if size is not None]
    sampled = np.array([size.sampled for size in safe])
    tolerated = np.array([size.tolerated for size in safe])
    with plt.rc_context(STYLE):
        figure, (upper, lower) = plt.subplots(2, 1, sharex=True, figsize=(7.2, 5.6))
        _kappa_panel(upper, chosen, safe)
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


def _kappa_panel(axes: Axes, chosen: Plan, safe: list[SampleSize]) -> None:
    """The κ proved for the rule, if any, above the best possible one."""
    best = np.array([size.kappa_best for size in safe])
    proved = np.array([math.nan if size.kappa is None else size.kappa for size in safe])
    sampled = [size.sampled for size in safe]
    axes.plot(sampled, best, color=GREY, lw=1.2, label="best possible, r")
    if chosen.kappa is not None:
        axes.plot(sampled, proved, color=BLUE, lw=1.6, label=f"proved for {chosen.rule}")
    shown, name = (chosen.kappa, "κ") if chosen.kappa is not None else (chosen.kappa_best, "r")
    label = f"n̂ = {chosen.sampled}, b̂ = {chosen.tolerated}\n{name} = {shown:.3g}"
    axes.plot([chosen.sampled], [shown], "o", color=RED, ms=7, zorder=3)
    axes.annotate(
        label,
        (chosen.sampled, shown),
        xytext=(10, 14),
        textcoords="offset points",
        color=RED,
        weight="bold",
    )
    if best.min() > 0:
        axes.set_yscale("log")
        plain_ticks(axes.yaxis)
    axes.set_ylabel("error factor κ")
    axes.legend(frameon=False, loc="upper right")


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


def scenarios_figure(compared: Sequence[Scenario]) -> Figure:
    """Draw n̂, b̂ and κ over the share of Byzantine clients, for plans that exist."""
    plans = [scenario.plan for scenario in compared if scenario.plan is not None]
    if not plans:
        raise ValueError("there is no plan to draw: no number of Byzantine clients can be met")
    shares = [100 * plan.byzantine / plan.clients for plan in plans]
    with plt.rc_context(STYLE):
        figure, (upper, lower) = plt.subplots(2, 1, sharex=True, figsize=(7.2, 5.6))
        upper.plot(shares, [plan.sampled for plan in plans], "o-", color=BLUE, label="sample, n̂")
        upper.plot(shares, [plan.tolerated for plan in plans], "o-", color=RED, label="tolerate, b̂")
        upper.set_ylabel("clients in a round")
        upper.legend(frameon=False)
        best = [plan.kappa_best for plan in plans]
        lower.plot(shares, best, "o-", color=GREY, label="best possible, r")
        if all(plan.kappa is not None for plan in plans):
            proved = [plan.kappa for plan in plans]
            lower.plot(shares, proved, "o-", color=BLUE, label=f"proved for {plans[0].rule}")
        lower.set_ylabel("error factor κ")
        lower.set_xlabel("Byzantine clients, % of all")
        lower.legend(frameon=False)
        figure.suptitle(
            f"{plans[0].clients} clients, {plans[0].rounds} rounds, confidence "
            f"{plans[0].confidence:g}, by the number of Byzantine clients",
            x=0.02,
            ha="left",
        )
        figure.tight_layout()
    return figure
