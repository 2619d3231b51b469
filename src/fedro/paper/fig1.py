"""Figure 1: n̂_th and n̂_opt over the share of Byzantine clients (n = 1000, T = 500, p = 0.99)."""

from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.figure import Figure as Picture

from fedro.common.figures import STYLE
from fedro.common.palette import BLUE, RED
from fedro.paper.figure import ClaimResult, FigurePanel, FigureRequest, FigureRuns, PaperFigure, Row
from fedro.planning import plan, theory

CLIENTS, ROUNDS, CONFIDENCE = 1000, 500, 0.99
SHARE, SAMPLED = 0.2, 0.2  # the paper's claim: at b/n = 0.2, a fifth of the clients suffices


def plan_runs(request: FigureRequest) -> FigureRuns:
    """A panel without runs, since the figure is computed; `smoke` uses fewer clients."""
    clients = 100 if request.scale == "smoke" else CLIENTS
    reductions = [f"n = {clients} instead of {CLIENTS}"] if clients != CLIENTS else []
    return FigureRuns([FigurePanel("", "", {}, {"clients": clients})], [], reductions)


def tabulate(runs: FigureRuns, _: Path) -> list[Row]:
    """The paper's and the exact sample sizes for every number of Byzantine clients."""
    clients = runs.panels[0].facts["clients"]
    return [_row(clients, byzantine) for byzantine in range(1, (clients + 1) // 2)]


def _row(clients: int, byzantine: int) -> Row:
    beta = byzantine / clients
    exact = plan(clients=clients, byzantine=byzantine, rounds=ROUNDS, confidence=CONFIDENCE)
    return {
        "byzantine": byzantine,
        "fraction": beta,
        "n_th": min(clients, theory.sample_threshold(beta, ROUNDS, CONFIDENCE)),
        "n_opt": min(clients, theory.optimal_threshold(beta, ROUNDS, CONFIDENCE)),
        "n_min_exact": exact.n_min,
        "n_all_exact": exact.n_all or clients,
        "n_recommended": exact.sampled,
        "tolerated_recommended": exact.tolerated,
    }


def judge(runs: FigureRuns, rows: list[Row]) -> list[ClaimResult]:
    """Judge what the paper concludes from the figure."""
    clients = runs.panels[0].facts["clients"]
    row = next(row for row in rows if row["byzantine"] == round(SHARE * clients))
    return [
        ClaimResult(
            f"With {SHARE:.0%} Byzantine clients, sampling {SAMPLED:.0%} of {clients} converges "
            "with an order-optimal error.",
            "held" if row["n_opt"] <= SAMPLED * clients else "not held",
            f"n̂_opt = {row['n_opt']}, n̂_th = {row['n_th']}; computed exactly, "
            f"{row['n_min_exact']} is the smallest size that works, and the plan recommends "
            f"{row['n_recommended']}.",
        )
    ]


def draw(runs: FigureRuns, rows: list[Row]) -> Picture:
    """The paper's curves (solid) and the exact ones (dashed)."""
    clients = runs.panels[0].facts["clients"]
    share = [row["fraction"] for row in rows]
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots()
        for key, color, style, label in (
            ("n_opt", RED, "-", "n̂_opt, order-optimal error (paper)"),
            ("n_th", BLUE, "-", "n̂_th, convergence (paper)"),
            ("n_recommended", RED, "--", "r ≤ max(1, 2r of all clients) (exact)"),
            ("n_min_exact", BLUE, "--", "smallest n̂ that works (exact)"),
        ):
            axes.plot(share, [row[key] for row in rows], color=color, ls=style, label=label)
        axes.set_xlabel("share of Byzantine clients, b/n")
        axes.set_ylabel("clients to sample each round")
        axes.set_xlim(0, 0.5)
        axes.set_ylim(0, clients * 1.03)
        axes.legend(loc="upper center")
        axes.set_title(f"n = {clients}, T = {ROUNDS}, p = {CONFIDENCE:g}", loc="left")
    return figure


FIGURE = PaperFigure("How many clients to sample", plan_runs, judge, draw, tabulate)
