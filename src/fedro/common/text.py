"""Numbers and tables as people read them."""

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence


def percent(probability: float) -> str:
    """A probability with as many digits as tell it from 0 and 1: 99.3%, 99.99987%, 3e-27."""
    if probability in (0.0, 1.0):
        return f"{probability:.0%}"
    if probability < 1e-6:
        return f"{probability:.1g}"
    distance = min(probability, 1 - probability)
    digits = max(0, -math.floor(math.log10(distance * (1 + 1e-9))) - 1)
    text = f"{100 * probability:.{digits}f}"
    return (text.rstrip("0").rstrip(".") if digits else text) + "%"


def counted(number: int, noun: str) -> str:
    """1 client, 2 clients."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table for documents."""
    lines = [header, ("---",) * len(header), *rows]
    escaped = (" | ".join(cell.replace("|", r"\|") for cell in line) for line in lines)
    return "\n".join(f"| {line} |" for line in escaped)


def csv_table(rows: Iterable[Mapping[str, object]], first: Sequence[str] = ()) -> str:
    """CSV with a column for every key that any row has; `first` are there in any case."""
    kept = list(rows)
    columns = list(dict.fromkeys([*first, *(key for row in kept for key in row)]))
    file = io.StringIO(newline="")
    writer = csv.DictWriter(file, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(kept)
    return file.getvalue()
