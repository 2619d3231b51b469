"""Reproduces the paper's figures and judges the claims that the paper makes about them.

Each figure has runs at three scales: ``paper`` is the paper's full setting, ``desk`` takes about an
hour on two cores with real data, ``smoke`` takes seconds on the digits. The runs are recorded in
run folders, so an interrupted reproduction continues where it stopped.
"""

from fedro.common.registry import Table
from fedro.paper import fig1, fig2, fig3, fig4
from fedro.paper.figure import FigureRequest, PaperFigure
from fedro.paper.reproduce import reproduce_figure

FIGURES: Table[PaperFigure] = Table("figure")
FIGURES["fig1"] = fig1.FIGURE
FIGURES["fig2"] = fig2.FIGURE
FIGURES["fig3"] = fig3.FIGURE
FIGURES["fig4"] = fig4.FIGURE

__all__ = ["FIGURES", "FigureRequest", "PaperFigure", "reproduce_figure"]
