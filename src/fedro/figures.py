"""Figures: the paper's, one function each, and the plan's own."""

import contextlib
import csv
from collections.abc import Callable
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

from fedro import theory
from fedro.planning import Plan, plan
from fedro.registry import Table

Draw = Callable[[Path], list[Path]]
FIGURES: Table[Draw] = Table("figure")

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
    unfinished = path.with_name(f".{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(unfinished, format=kind, bbox_inches="tight")
        unfinished.replace(path)
    except OSError as error:
        raise OSError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        with contextlib.suppress(OSError):
            unfinished.unlink(missing_ok=True)
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


def fig1(out: Path, clients: int = 1000, rounds: int = 500, confidence: float = 0.99) -> list[Path]:
    """Figure 1: n̂_th and n̂_opt over b/n (n = 1000, T = 500, p = 0.99), and the exact sizes."""
    rows = [_fig1_row(clients, b, rounds, confidence) for b in range(1, (clients + 1) // 2)]
    out.mkdir(parents=True, exist_ok=True)
    with (out / "fig1.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return [
        save(_fig1_figure(rows, clients, rounds, confidence), out / "fig1.png"),
        out / "fig1.csv",
    ]


FIGURES["fig1"] = fig1


def _fig1_row(clients: int, byzantine: int, rounds: int, confidence: float) -> dict[str, float]:
    beta = byzantine / clients
    exact = plan(clients=clients, byzantine=byzantine, rounds=rounds, confidence=confidence)
    return {
        "byzantine": byzantine,
        "fraction": beta,
        "n_th": min(clients, theory.sample_threshold(beta, rounds, confidence)),
        "n_opt": min(clients, theory.optimal_threshold(beta, rounds, confidence)),
        "n_min_exact": exact.n_min,
        "n_all_exact": exact.n_all or clients,
        "n_recommended": exact.sampled,
        "tolerated_recommended": exact.tolerated,
    }


def _fig1_figure(
    rows: list[dict[str, float]], clients: int, rounds: int, confidence: float
) -> Figure:
    share = [row["fraction"] for row in rows]
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots()
        for key, color, style, label in (
            ("n_opt", RED, "-", "n̂_opt, order-optimal error (paper)"),
            ("n_th", BLUE, "-", "n̂_th, convergence (paper)"),
            ("n_recommended", RED, "--", "κ ≤ max(1, 2κ of everyone) (exact)"),
            ("n_min_exact", BLUE, "--", "least n̂ that works (exact)"),
        ):
            axes.plot(share, [row[key] for row in rows], color=color, ls=style, label=label)
        axes.set_xlabel("share of bad clients, b/n")
        axes.set_ylabel("clients to sample each round")
        axes.set_xlim(0, 0.5)
        axes.set_ylim(0, clients * 1.03)
        axes.legend(loc="upper center")
        axes.set_title(f"n = {clients}, T = {rounds}, p = {confidence:g}", loc="left")
    return figure
