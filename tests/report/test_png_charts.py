"""PNG charts show the same numbers."""

from pathlib import Path

import pytest
from matplotlib import pyplot as plt

from fedro.report import write_report
from fedro.report.chart import Panel
from fedro.report.png_charts import draw_chart
from fedro.report.run_data import find_runs
from fedro.report.series import ReportData, group_runs
from report_cases import charts


@pytest.mark.slow
def test_pictures_show_the_same(data: ReportData, one: Path, tmp_path: Path) -> None:
    chart = charts(data)["accuracy"]
    figure = draw_chart(chart)
    for axes, panel in zip(figure.axes, chart.panels, strict=True):
        assert isinstance(panel, Panel)
        drawn = [list(line.get_ydata()) for line in axes.get_lines()]  # type: ignore[arg-type]
        assert drawn == [list(trace.y) for trace in panel.traces]
        assert (axes.get_xlabel(), axes.get_ylabel()) == (panel.x.title, panel.y.title)
    plt.close(figure)
    files = write_report([one], tmp_path / "r.html", png=tmp_path / "png").files
    assert [file.name for file in files[1:]] == [
        f"{key}.png" for key in charts(group_runs(*find_runs([one])))
    ]
    assert all(file.read_bytes().startswith(b"\x89PNG") for file in files[1:])
