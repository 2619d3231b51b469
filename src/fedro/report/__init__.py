"""A report on runs, from their folders alone: a page for the browser, pictures, tables.

>>> from fedro.report import write_report
>>> write_report(["/nowhere"], "report.html")
Traceback (most recent call last):
fedro.runs.files.RunFolderError: /nowhere is not a folder: name run folders, or folders of them
"""

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import NamedTuple

from fedro.common.atomic_files import put
from fedro.report.runs import find
from fedro.report.series import Study, study

__all__ = ["Written", "write_report"]

Name = str | PathLike[str]


class Written(NamedTuple):
    """What was written, and what should be said about the runs."""

    files: list[Path]
    study: Study


def write_report(
    runs: Sequence[Name], out: Name, *, png: Name | None = None, csv: Name | None = None
) -> Written:
    """Read the runs in these folders and write a page; also pictures and tables, into folders."""
    from fedro.report.page import page
    from fedro.report.sections import sections

    found = study(*find([Path(path) for path in runs]))
    parts = sections(found)
    files = [put(Path(out), page(found, parts))]
    if png is not None:
        from fedro.report.pictures import draw

        files += [draw(chart, Path(png)) for part in parts for chart in part.charts]
    if csv is not None:
        from fedro.report.tables import tables

        files += [put(Path(csv) / name, text) for name, text in tables(found).items()]
    return Written(files, found)
