"""The runs as CSV files: one line for each run, round, client, reply not used, or client judged."""

from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

from fedro.common.text import csv_table
from fedro.report.events import UnusedReply, unused_replies
from fedro.report.run_data import SCORES, RoundData, RunData
from fedro.report.sampling import SamplingGroup
from fedro.report.series import ReportData
from fedro.server.suspect_report import ClientEvidence

CsvRow = Mapping[str, Any]


def csv_files(data: ReportData) -> dict[str, str]:
    """The content of each CSV file, by file name."""
    return {
        "runs.csv": csv_table(
            _run_row(series.name, run) for series in data.series for run in series.runs
        ),
        "rounds.csv": csv_table(
            (_round_row(run, round_) for run in data.runs for round_ in run.rounds),
            ("folder", "seed", "round"),
        ),
        "clients.csv": csv_table(row for run in data.runs for row in _client_rows(run)),
        "unused_replies.csv": csv_table(
            (
                {"folder": run.path, **reply._asdict()}
                for run in data.runs
                for reply in unused_replies(run)
            ),
            ("folder", *UnusedReply._fields),
        ),
        "suspects.csv": csv_table(
            (row for run in data.runs for row in _suspect_rows(run)),
            ("folder", "seed", *(field.name for field in fields(ClientEvidence))),
        ),
    }


def _suspect_rows(run: RunData) -> Iterator[CsvRow]:
    """What the run shows of each client that was drawn; lists are joined by spaces."""
    for client in () if run.suspects is None else run.suspects.clients:
        lists = {"partners": " ".join(map(str, client.partners)), "why": " ".join(client.why)}
        yield {"folder": run.path, "seed": run.seed, **vars(client), **lists}


def _run_row(series: str, run: RunData) -> CsvRow:
    score = run.last_score or {}
    sampling = SamplingGroup(
        run.clients, run.byzantine, run.sampled, run.tolerated, run.planned_rounds, [run]
    )
    return {
        "folder": run.path,
        "series": series,
        "finished": run.finished,
        "rounds_completed": len(run.rounds),
        **{f"final_{key}": score.get(key) for key in SCORES},
        "overruns": run.overruns,
        "probability_no_overrun": sampling.safe,
        "void": sum(round_.void is not None for round_ in run.rounds),
        "takeovers": sum(round_.takeover for round_ in run.rounds),
        "rejected": sum(len(round_.rejected) for round_ in run.rounds),
        "missing": sum(len(round_.missing) for round_ in run.rounds),
        "problem": run.problem,
        "seconds": run.seconds,
        **run.config,
        "clients": run.clients,
        "sampled": run.sampled,
        "tolerated": run.tolerated,
    }


def _round_row(run: RunData, round_: RoundData) -> CsvRow:
    return {
        "folder": run.path,
        "seed": run.seed,
        "round": round_.round,
        "lr": round_.lr,
        "sampled": len(round_.sampled),
        "byzantine": None if round_.byzantine is None else len(round_.byzantine),
        "tolerated": run.tolerated,
        "missing": len(round_.missing),
        "rejected": len(round_.rejected),
        "void": round_.void,
        "takeover": round_.takeover,
        "attack": round_.attack,
        "train_loss": round_.train_loss,
        "diverged": round_.diverged,
        "error": round_.error,
        "variance": round_.variance,
        "kappa_seen": round_.kappa_seen,
        "kappa_proved": round_.kappa_proved,
        **{f"seconds_{part}": value for part, value in round_.seconds.items()},
        **{f"test_{key}": (round_.score or {}).get(key) for key in SCORES},
    }


def _client_rows(run: RunData) -> Iterator[CsvRow]:
    """Whether a client is Byzantine is known only once it has been sampled."""
    invited: dict[int, int] = {}
    unused: dict[str, dict[int, int]] = {"rejected": {}, "missing": {}}
    byzantine: set[int] = set()
    for round_ in run.rounds:
        byzantine.update(round_.byzantine or ())
        for client in round_.sampled:
            invited[client] = invited.get(client, 0) + 1
    for reply in unused_replies(run):
        unused[reply.kind][reply.client] = unused[reply.kind].get(reply.client, 0) + 1
    for client in range(run.clients or max(invited, default=-1) + 1):
        known = client in invited and run.byzantine_known
        yield {
            "folder": run.path,
            "seed": run.seed,
            "client": client,
            "byzantine": client in byzantine if known else None,
            "examples": run.examples[client] if run.examples else None,
            "invited": invited.get(client, 0),
            **{kind: counts.get(client, 0) for kind, counts in unused.items()},
        }
