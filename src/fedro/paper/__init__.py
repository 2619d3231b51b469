"""The paper's figures, each made again from its own runs, with a verdict on what it claims.

A figure has a *study* at each scale: ``paper`` is its full setting, ``desk`` what two cores do in
about an hour on real data, ``smoke`` seconds on the digits. A study is a set of experiments, so a
figure that was cut goes on where it was.
"""

from fedro.common.registry import Table
from fedro.paper import fig1, fig2, fig3, fig4
from fedro.paper.making import make
from fedro.paper.study import Ask, Figure

FIGURES: Table[Figure] = Table("figure")
FIGURES["fig1"] = fig1.FIGURE
FIGURES["fig2"] = fig2.FIGURE
FIGURES["fig3"] = fig3.FIGURE
FIGURES["fig4"] = fig4.FIGURE

__all__ = ["FIGURES", "Ask", "Figure", "make"]
