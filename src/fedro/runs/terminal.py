"""A run folder as text for a terminal: one frame of ``fedro watch``."""

import math
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from fedro.common.text import counted
from fedro.runs.progress import Evaluation, Progress, RunStatus

MAX_METRICS, MAX_CLIENTS, MAX_REASONS, MAX_RUNS = 5, 4, 2, 40
MAX_REASON_LENGTH = 60
BAR_WIDTH = 20
LABEL_WIDTH = 9
WIDE = 100  # columns, enough for the ids of nodes
LEVELS = "▁▂▃▄▅▆▇█"
SILENT_ROUNDS, MIN_SILENCE = 5, 60.0  # a run is silent after the longer of 5 rounds and 60 seconds
LOW_MARGIN = 1 / 3  # of the planned margin
STATE_STYLES = {
    "running": "bold green",
    "finished": "bold green",
    "stopped": "bold yellow",
    "failed": "bold red",
}


def run_frame(status: RunStatus, width: int) -> RenderableType:
    """Compose what a terminal of this width shows of a run."""
    rows = Table.grid(padding=(0, 1))
    rows.add_column(style="dim", width=LABEL_WIDTH, no_wrap=True)
    rows.add_column(ratio=1)
    rows.add_row("rounds", _rounds(status))
    for row in _rows(status, width):
        rows.add_row(*row)
    return Group(_heading(status, width), rows)


def _rows(status: RunStatus, width: int) -> Iterator[tuple[str, RenderableType]]:
    p = status.progress
    if p.evaluations:
        yield "evaluated", _evaluations(p.evaluations, width)
    if p.margin is not None and p.lowest_margin is not None:
        yield "margin", _margin(p)
    if status.deployed and p.available is not None:
        yield "nodes", _nodes_online(p)
    if p.last_void is not None:
        yield "void", _void(p)
    if p.missing or p.rejected:
        yield "lost", _lost_replies(status, width)
    if p.overruns is not None and p.rounds:
        yield "κ", _byzantine(p)
    if p.suspects:
        yield "suspects", Text(", ".join(_printable(client) for client in p.suspects), "yellow")
    if status.problem is not None:
        yield "problem", Text(_printable(status.problem, None), "bold red")


def sweep_frame(statuses: Sequence[RunStatus], path: Path, width: int) -> RenderableType:
    """Compose a table of the runs in a folder, the unfinished ones first."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    table.add_column("run", overflow="ellipsis", no_wrap=True, max_width=max(12, width - 52))
    for name in ("rounds", "evaluated", "margin", "void", "state"):
        table.add_column(name, justify="left" if name == "state" else "right", no_wrap=True)
    ordered = sorted(statuses, key=lambda status: status.state == "finished")
    for status in ordered[:MAX_RUNS]:
        p = status.progress
        name, latest = _latest(p)
        table.add_row(
            _printable(status.path.name),
            f"{p.rounds} of {status.rounds}",
            "" if latest is None else _value(name, latest.value),
            "" if p.lowest_margin is None else str(p.lowest_margin.replies),
            str(p.void or ""),
            Text(status.state, STATE_STYLES[status.state]),
        )
    states = Counter(status.state for status in statuses)
    counts = ", ".join(f"{number} {state}" for state, number in states.items())
    heading = Text.assemble((_shortened(path, width - 40), "bold"), f"  {counts}")
    left_out = len(statuses) - MAX_RUNS
    more = [Text(f"and {left_out} more", "dim")] if left_out > 0 else []
    return Group(heading, table, Text("margin: the lowest of the run", "dim"), *more)


def one_line(status: RunStatus) -> str:
    """A run in one line, for logs."""
    p = status.progress
    name, latest = _latest(p)
    parts = [f"{status.state}, round {p.rounds} of {status.rounds}"]
    parts += [] if latest is None else [f"{_printable(name)} {_value(name, latest.value)}"]
    if p.margin is not None and p.lowest_margin is not None:
        parts.append(f"margin {p.margin.replies} (lowest {p.lowest_margin.replies})")
    parts += [f"{counted(p.void, 'void round')}"] if p.void else []
    return ", ".join(parts)


def _heading(status: RunStatus, width: int) -> Text:
    text = Text.assemble((_shortened(status.path, width - 52), "bold"), "  ")
    text.append(status.state, STATE_STYLES[status.state])
    if status.process is not None:
        text.append(f" (process {_printable(status.process)})")
    elif status.state == "stopped":
        text.append(" (no process writes it)")
    if status.state == "running" and _silent(status):
        return text.append(f"  no new round for {_duration(status.age)}", "bold yellow")
    return text.append(f"  last write {_duration(status.age)} ago", "dim")


def _silent(status: RunStatus) -> bool:
    usual = status.progress.seconds_per_round or 0.0
    return status.age > max(MIN_SILENCE, SILENT_ROUNDS * usual)


def _rounds(status: RunStatus) -> Text:
    p = status.progress
    done = round(BAR_WIDTH * min(1.0, p.rounds / max(1, status.rounds)))
    text = Text(f"{p.rounds} of {status.rounds}  ")
    text.append("█" * done, STATE_STYLES[status.state])
    text.append("░" * (BAR_WIDTH - done), "dim")
    each = p.seconds_per_round
    if status.state in ("finished", "failed"):
        text.append(f"  in {_duration(p.seconds)}")
    elif each is not None:
        text.append(f"  {_rate(each)}")
        if status.state == "running":
            text.append(f", about {_duration(each * (status.rounds - p.rounds))} left")
    return text


def _evaluations(evaluations: Mapping[str, Sequence[Evaluation]], width: int) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, max_width=16, overflow="ellipsis")
    for _ in range(3):
        table.add_column(no_wrap=True)
    curve = max(8, min(60, width - 58))
    for name, series in list(evaluations.items())[:MAX_METRICS]:
        last, spread = series[-1], ""
        if last.low is not None and last.high is not None:
            spread = f"{_value(name, last.low)} – {_value(name, last.high)}"
        values = [evaluation.value for evaluation in series]
        latest = Text(_value(name, last.value), "bold")
        table.add_row(Text(_printable(name)), latest, Text(spread), Text(sparkline(values, curve)))
    return table


def sparkline(values: Sequence[float], width: int) -> str:
    """Draw values as a line of blocks between the lowest and the highest one.

    More values than fit are averaged. Values that are not finite leave a gap.

    >>> sparkline([0, 1, 2, 3], width=10)
    '▁▃▆█'
    """
    cells = min(width, len(values))
    means = []
    for cell in range(cells):
        start, end = cell * len(values) // cells, (cell + 1) * len(values) // cells
        finite = [value for value in values[start:end] if math.isfinite(value)]
        means.append(sum(value / len(finite) for value in finite) if finite else None)
    known = [mean for mean in means if mean is not None]
    low, high = min(known, default=0.0), max(known, default=0.0)
    span = high / 2 - low / 2  # half, which cannot overflow
    top = len(LEVELS) - 1
    return "".join(
        " "
        if mean is None
        else LEVELS[round(top * ((mean / 2 - low / 2) / span)) if span > 0 else 0]
        for mean in means
    )


def _margin(p: Progress) -> Text:
    assert p.margin is not None
    assert p.lowest_margin is not None
    text = Text.assemble(
        (str(p.margin.replies), _margin_style(p, p.margin.replies)),
        " now, ",
        (str(p.lowest_margin.replies), _margin_style(p, p.lowest_margin.replies)),
        f" lowest (round {p.lowest_margin.round}), {p.planned_margin} without lost replies",
    )
    if p.tolerated_now is not None and p.tolerated_now > p.tolerated:
        more = f"; b̂ = {p.tolerated_now} instead of {p.tolerated}"
        text.append(more, "bold yellow")
    return text


def _margin_style(p: Progress, margin: int) -> str:
    if margin <= 0:
        return "bold red"
    return "bold yellow" if margin < LOW_MARGIN * p.planned_margin else "bold"


def _nodes_online(p: Progress) -> Text:
    return Text(f"{p.available} online, n̂ = {p.sampled}, b̂ = {p.tolerated}")


def _void(p: Progress) -> Text:
    assert p.last_void is not None
    style = "bold red" if p.void_in_a_row else "yellow"
    in_a_row = f", {p.void_in_a_row} in a row now" if p.void_in_a_row else ""
    text = Text.assemble((counted(p.void, "round"), style), in_a_row)
    return text.append(f"; the last, {p.last_void.round}: {_printable(p.last_void.reason)}")


def _lost_replies(status: RunStatus, width: int) -> RenderableType:
    """The clients that lost the most replies, with their reasons."""
    p = status.progress
    totals = [
        f"{sum(map(Counter.total, lost.values()))} {name}"
        for name, lost in (("missing", p.missing), ("rejected", p.rejected))
    ]
    total = Text(f"{' and '.join(totals)} of {counted(p.invited, 'reply', 'replies')}")
    entries = [
        (outcome, client, reasons)
        for outcome, lost in (("rejected", p.rejected), ("missing", p.missing))
        for client, reasons in lost.items()
    ]
    entries.sort(key=lambda entry: -entry[2].total())
    table = Table.grid(padding=(0, 2, 0, 0), expand=True)
    for ratio in (None, None, 1):
        table.add_column(no_wrap=True, overflow="ellipsis", ratio=ratio)
    for outcome, client, reasons in entries[:MAX_CLIENTS]:
        number = Text(f"{reasons.total()} {outcome}", "yellow" if outcome == "rejected" else "")
        table.add_row(_client_name(status, client, width), number, Text(_reasons(reasons)))
    left_out = len(entries) - MAX_CLIENTS
    return Group(total, table, *[Text(f"and {left_out} more", "dim")] * (left_out > 0))


def _reasons(reasons: Counter[str]) -> str:
    """The most common reasons, with their numbers if there are several."""
    if len(reasons) == 1:
        return _printable(next(iter(reasons)))
    common = reasons.most_common(MAX_REASONS)
    return "; ".join(f"{times}× {_printable(reason)}" for reason, times in common)


def _client_name(status: RunStatus, client: str, width: int) -> Text:
    node = status.nodes.get(client)
    if node is None:
        return Text(f"client {_printable(client)}")
    text = Text(f"node {_printable(client)}")
    if width >= WIDE:
        text.append(f" ({_printable(node.id)})", "dim")
    return text.append(" quarantined", "bold yellow") if node.quarantined else text


def _byzantine(p: Progress) -> Text:
    text = Text()
    if p.kappa_seen is not None and p.kappa_largest is not None:
        proved = "none" if p.kappa_proved is None else f"{p.kappa_proved:.3g}"
        text.append(f"{p.kappa_seen:.3g} now, {p.kappa_largest:.3g} largest, proved {proved}; ")
    style = "bold yellow" if p.overruns else ""
    overruns = counted(p.overruns, "round") if p.overruns else "no round"
    return text.append(f"{overruns} above b̂ = {p.tolerated}", style)


def _latest(p: Progress) -> tuple[str, Evaluation | None]:
    """The last value of the first metric."""
    name = next(iter(p.evaluations), "")
    return name, p.evaluations[name][-1] if name else None


def _value(name: str, value: float) -> str:
    shares = ("accuracy", "mean client", "worst tenth", "backdoor")
    return f"{100 * value:.1f}%" if name in shares else f"{value:.4g}"


def _rate(seconds: float) -> str:
    if seconds < 0.5:
        return f"{1 / seconds:.3g} rounds a second" if seconds > 0 else "no time a round"
    return f"{_duration(seconds)} a round"


def _duration(seconds: float) -> str:
    """Format a time roughly.

    >>> _duration(4.25), _duration(185), _duration(7300), _duration(90_000)
    ('4.2 s', '3 min', '2 h 2 min', '25 h')
    """
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 100:
        return f"{minutes} min"
    hours, rest = divmod(minutes, 60)
    return f"{hours} h {rest} min" if rest and hours < 24 else f"{hours} h"


def _shortened(path: Path, width: int) -> str:
    """The end of a path that is too long."""
    text, width = _printable(os.fspath(path), None), max(12, width)
    return text if len(text) <= width else "…" + text[1 - width :]


def _printable(text: str, length: int | None = MAX_REASON_LENGTH) -> str:
    """Text that may come from a node, without the characters that control a terminal."""
    clean = "".join(char if char.isprintable() else "?" for char in text)
    return clean if length is None or len(clean) <= length else clean[: length - 1] + "…"
