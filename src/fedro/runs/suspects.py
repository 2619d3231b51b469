"""Who is suspect in a run: from its folder, its lines or its rounds."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedro.common.checks import number
from fedro.common.shares import parse_share
from fedro.planning import Outlook
from fedro.planning.feasibility import PlanningProblem, tolerated_at
from fedro.runs.errors import RunFolderError, read_bytes
from fedro.runs.json_lines import parse_json
from fedro.runs.reading import RecordedRun, read
from fedro.server.suspect_report import SuspectReport, report_suspects
from fedro.server.suspects import DEFAULT_FDR

if TYPE_CHECKING:
    from fedro.server import Round


def suspects(
    run: "str | PathLike[str] | Iterable[Mapping[str, Any] | Round]",
    *,
    fdr: float | str | None = None,
) -> SuspectReport:
    """Find out which clients of a run are suspect, and how many must be Byzantine.

    Clients are suspect if their updates point elsewhere than those of the others, or are copies.
    Of those flagged for their direction, the share of honest ones is at most `fdr` on average, as
    far as the assumptions in docs/explanation/suspects.md hold.

    Args:
        run: A run folder; or the rounds that `fedro.run` yields; or lines of rounds.jsonl as dicts.
        fdr: The rate of false discoveries, like 0.05 or "5%". By default that of the run.

    Returns:
        The report. `report.suspects` lists the suspects, `report.clients` what is known of each
        client, and `print(report)` shows a table. If there is not enough evidence, `report.enough`
        is False and `report.reason` says what is missing.

    Raises:
        RunFolderError: The folder holds no run, or a damaged one, or one without evidence.
        ValueError: If `fdr` is not between 0 and 1, or the lines hold no evidence.

    Example:
        >>> import fedro
        >>> rounds = list(fedro.run(fedro.Experiment(clients=12, rounds=12)))
        >>> fedro.suspects(rounds, fdr="5%").suspects
        []
    """
    if isinstance(run, (str, PathLike)):
        return _of_folder(Path(run), fdr)
    lines = [line if isinstance(line, Mapping) else line.as_dict() for line in run]
    return report_suspects(_with_evidence(lines), _rate(fdr, DEFAULT_FDR))


def _rate(fdr: float | str | None, default: float) -> float:
    rate = parse_share("fdr", fdr) if isinstance(fdr, str) else fdr
    allowed = "0 < fdr < 1, like 0.05 or 5%"
    return number("fdr", default if rate is None else rate, allowed, lambda x: 0 < x < 1)


def _of_folder(path: Path, fdr: float | str | None) -> SuspectReport:
    run = read(path)
    try:
        _with_evidence(run.rounds)
        return suspects_in(path, run, fdr)
    except RunFolderError:
        raise
    except ValueError as error:
        raise RunFolderError(f"{path}: {error}") from None


def suspects_in(path: Path, run: RecordedRun, fdr: float | str | None = None) -> SuspectReport:
    """The report on a run that was read from this folder."""
    rate = _rate(fdr, run.config.get("fdr", DEFAULT_FDR))
    planned = run.config.get("byzantine", 0)
    report = report_suspects(run.rounds, rate, nodes=node_ids(path), planned=planned)
    return replace(report, outlook=_outlook(run, report.at_least))


def _with_evidence(lines: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """The lines, if they are from a version that records evidence."""
    if lines and not any("evidence" in line for line in lines):
        raise ValueError(
            "its rounds hold no evidence about the clients, because an older version of fedro "
            "wrote them. Run it again to record evidence"
        )
    return lines


def node_ids(path: Path) -> dict[int, str]:
    """The id of the Flower node behind each client, by its number; empty for simulations."""
    data = read_bytes(path / "ledger.json")
    if data is None:
        return {}
    ledger = parse_json(data, path / "ledger.json")
    return {int(record["number"]): str(node) for node, record in ledger.items()}


def _outlook(run: RecordedRun, at_least: int) -> Outlook | None:
    """What the run's n̂ and b̂ guarantee with so many Byzantine clients, if it has planned fewer."""
    config, summary = run.config, run.summary or {}
    clients = config.get("clients") or len(summary.get("examples") or ())
    sampled, tolerated = (run.fingerprint.get(key) for key in ("sampled", "tolerated"))
    if not clients or sampled is None or tolerated is None:
        return None
    if at_least <= config.get("byzantine", 0):
        return None
    problem = PlanningProblem(
        population=clients,
        byzantine=at_least,
        draws=config["rounds"],
        retries=0,
        dropout=0.0,
        confidence=config.get("confidence", 0.99),
        bound="exact",
    )
    log_safe = problem.log_safe(sampled, tolerated)
    return Outlook(
        byzantine=at_least,
        confidence=math.exp(log_safe),
        overrun_rounds=problem.draws * -math.expm1(log_safe / problem.draws),
        tolerated=tolerated_at(problem, sampled),
    )
