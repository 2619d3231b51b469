"""Format numbers, tables and TOML files."""

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence

import tomli_w


def percent(probability: float) -> str:
    """Format a probability with enough digits to tell it from 0 and 1.

    >>> percent(0.993), percent(0.9999987), percent(3e-27), percent(1 - 1e-15)
    ('99.3%', '99.99987%', '3e-27', 'over 99.9999999%')
    """
    if probability in (0.0, 1.0):
        return f"{probability:.0%}"
    if probability < 1e-6:
        return f"{probability:.1g}"
    if probability > 1 - 1e-9:
        return "over 99.9999999%"
    distance = min(probability, 1 - probability)
    digits = max(0, -math.floor(math.log10(distance * (1 + 1e-9))) - 1)
    text = f"{100 * probability:.{digits}f}"
    return (text.rstrip("0").rstrip(".") if digits else text) + "%"


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """Format a number with its noun: 1 client, 2 clients."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Format a table in Markdown."""
    lines = [header, ("---",) * len(header), *rows]
    escaped = (" | ".join(cell.replace("|", r"\|") for cell in line) for line in lines)
    return "\n".join(f"| {line} |" for line in escaped)


def csv_table(rows: Iterable[Mapping[str, object]], first: Sequence[str] = ()) -> str:
    """Format rows as CSV: the columns `first`, then one for every other key that any row has."""
    listed = list(rows)
    columns = list(dict.fromkeys([*first, *(key for row in listed for key in row)]))
    file = io.StringIO(newline="")
    writer = csv.DictWriter(file, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(listed)
    return file.getvalue()


def to_toml(values: Mapping[str, object]) -> str:
    """Format values as TOML, one line for each key; keys whose value is None are left out.

    ``tomllib.loads`` gives the same values back.

    >>> values = {"rule": "nnm", "client_lr": [(0, 0.1), (300, 0.02)], "target": None}
    >>> print(to_toml(values), end="")
    rule = "nnm"
    client_lr = [[0, 0.1], [300, 0.02]]

    Raises:
        TypeError: TOML has no form for one of the values, or a key is not a string.
        ValueError: A string is not valid Unicode.
    """
    given = {key: value for key, value in values.items() if value is not None}
    for key, value in given.items():
        try:
            tomli_w.dumps({key: value}).encode()
        except TypeError as error:
            raise TypeError(f"{key} = {value!r} cannot be written as TOML: {error}") from None
        except UnicodeEncodeError:
            raise ValueError(
                f"{key} = {value!r} holds half of a surrogate pair, not text"
            ) from None
    text = tomli_w.dumps(given, indent=0)
    # Strings hold no line breaks (they are escaped), so these are between the items of lists.
    return text.replace(",\n]", "]").replace("[\n", "[").replace(",\n", ", ")
