"""Reports on runs, made from their run folders: an HTML page, PNG charts and CSV files."""

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import NamedTuple

from fedro.common.atomic_files import (
    check_html_name,
    check_no_new_root_folder,
    write_atomically,
)
from fedro.report.run_data import find_runs
from fedro.report.series import group_runs

__all__ = ["ReportFiles", "write_report"]

PathName = str | PathLike[str]


class ReportFiles(NamedTuple):
    """The files that `write_report` wrote, and its remarks about the runs.

    Attributes:
        files: The written files, the page first.
        notes: What a reader should know: runs that are damaged, unfinished or duplicates, and
            runs that were made with different versions.

    Example:
        >>> ReportFiles([Path("report.html")], []).files
        [PosixPath('report.html')]
    """

    files: list[Path]
    notes: list[str]


def write_report(
    runs: Sequence[PathName],
    out: PathName,
    *,
    png: PathName | None = None,
    csv: PathName | None = None,
) -> ReportFiles:
    """Write an HTML page about runs, and optionally its charts as PNG and its numbers as CSV.

    The page needs no other file and no network. Runs that are still going on are shown up to
    their last recorded round. Damaged run folders are left out and mentioned in the notes.

    Args:
        runs: Run folders, or folders that contain run folders at any depth.
        out: The HTML file to write, such as ``"report.html"``.
        png: A folder for the charts as PNG files. None writes no charts.
        csv: A folder for ``runs.csv``, ``rounds.csv``, ``clients.csv``,
            ``unused_replies.csv`` and ``suspects.csv``. None writes no tables.

    Returns:
        The written files, the page first, and notes about the runs that a reader should know.

    Raises:
        ValueError: If the name of the page does not end in .html.
        RunFolderError: If a path is not a folder, or no intact run was found.
        OSError: If a file cannot be written.

    Example:
        >>> import fedro, tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> rounds = list(fedro.run_into(folder / "run", fedro.Experiment(rounds=1)))
        >>> write_report([folder], folder / "report.html").files[0].name
        'report.html'
    """
    from fedro.report.page import render_page, report_sections

    check_html_name(Path(out), "; --png writes the charts as pictures, --csv the numbers as tables")
    for folder in [Path(out).parent, *(Path(given) for given in (png, csv) if given is not None)]:
        check_no_new_root_folder(folder, folder)
    data = group_runs(*find_runs([Path(path) for path in runs]))
    sections = report_sections(data)
    files = [write_atomically(Path(out), render_page(data, sections))]
    if png is not None:
        from fedro.report.png_charts import write_png

        files += [write_png(chart, Path(png)) for section in sections for chart in section.charts]
    if csv is not None:
        from fedro.report.csv_files import csv_files

        files += [
            write_atomically(Path(csv) / name, text) for name, text in csv_files(data).items()
        ]
    return ReportFiles(files, data.notes)
