"""The runs as tidy tables, for other programs: one line a run, a round, a client, a lost reply."""

from collections.abc import Iterator, Mapping
from typing import Any

from fedro.common.text import csv_table
from fedro.report.draws import Draws
from fedro.report.events import Event, events
from fedro.report.runs import SCORES, Line, Run
from fedro.report.series import Study

Row = Mapping[str, Any]


def tables(study: Study) -> dict[str, str]:
    """The text of each file."""
    return {
        "runs.csv": csv_table(
            _run(series.name, run) for series in study.series for run in series.runs
        ),
        "rounds.csv": csv_table(
            (_round(run, line) for run in study.runs for line in run.lines),
            ("folder", "seed", "round"),
        ),
        "clients.csv": csv_table(row for run in study.runs for row in _clients(run)),
        "ledger.csv": csv_table(
            ({"folder": run.path, **e._asdict()} for run in study.runs for e in events(run)),
            ("folder", *Event._fields),
        ),
    }


def _run(series: str, run: Run) -> Row:
    final = run.final or {}
    draws = Draws(run.clients, run.byzantine, run.sampled, run.tolerated, run.rounds, [run])
    return {
        "folder": run.path,
        "series": series,
        "finished": run.finished,
        "rounds_done": len(run.lines),
        **{f"final_{key}": final.get(key) for key in SCORES},
        "rounds_over_tolerated": run.overrun,
        "probability_none_over": draws.safe,
        "void": sum(line.void is not None for line in run.lines),
        "takeovers": sum(line.takeover for line in run.lines),
        "rejected": sum(len(line.rejected) for line in run.lines),
        "missing": sum(len(line.missing) for line in run.lines),
        "seconds": run.seconds,
        **run.config,
        "clients": run.clients,
        "sampled": run.sampled,
        "tolerated": run.tolerated,
    }


def _round(run: Run, line: Line) -> Row:
    return {
        "folder": run.path,
        "seed": run.seed,
        "round": line.round,
        "lr": line.lr,
        "sampled": len(line.sampled),
        "byzantine": None if line.byzantine is None else len(line.byzantine),
        "tolerated": run.tolerated,
        "missing": len(line.missing),
        "rejected": len(line.rejected),
        "void": line.void,
        "takeover": line.takeover,
        "attack": line.attack,
        "train_loss": line.train_loss,
        "error": line.error,
        "variance": line.variance,
        "kappa_seen": line.kappa_seen,
        "kappa_proved": line.kappa_proved,
        **{f"seconds_{part}": value for part, value in line.seconds.items()},
        **{f"test_{key}": (line.score or {}).get(key) for key in SCORES},
    }


def _clients(run: Run) -> Iterator[Row]:
    """A client is known to be bad once it has been sampled."""
    invited: dict[int, int] = {}
    lost: dict[str, dict[int, int]] = {"rejected": {}, "missing": {}}
    bad: set[int] = set()
    for line in run.lines:
        bad.update(line.byzantine or ())
        for client in line.sampled:
            invited[client] = invited.get(client, 0) + 1
    for event in events(run):
        lost[event.kind][event.client] = lost[event.kind].get(event.client, 0) + 1
    for client in range(run.clients or max(invited, default=-1) + 1):
        yield {
            "folder": run.path,
            "seed": run.seed,
            "client": client,
            "bad": client in bad if client in invited and run.known else None,
            "examples": run.examples[client] if run.examples else None,
            "invited": invited.get(client, 0),
            **{kind: counts.get(client, 0) for kind, counts in lost.items()},
        }
