"""Turn replies into a robust step and robust metrics, and record which replies were not used."""

from collections.abc import Iterable, Mapping, Sequence
from logging import INFO, WARNING
from typing import Any, NamedTuple

import numpy as np
from flwr.app import ArrayRecord, Message, MetricRecord
from flwr.common.logger import log
from flwr.serverapp.strategy import Result

from fedro.flower.ledger import Ledger
from fedro.flower.messaging import NodeReply
from fedro.flower.replies import Metrics, Received, metrics_of, receive, receive_updates
from fedro.flower.session import Session
from fedro.flower.settings import StrategySettings
from fedro.flower.suspect_log import log_suspects
from fedro.server import aggregate, timed


class RobustMean(NamedTuple):
    """A trimmed mean of a metric, and the smallest and largest value that was not trimmed.

    With at most b̂ false values, each of the three lies between two honest ones.
    """

    value: float
    low: float
    high: float
    replies: int

    def __str__(self) -> str:
        return f"{self.value:.4g} [{self.low:.4g}, {self.high:.4g}]"


def robust_mean(values: Sequence[float], tolerated: int) -> RobustMean | None:
    """The mean without the b̂ smallest and b̂ largest values, or None with at most 2b̂ values.

    >>> str(robust_mean([0.7, 0.9, 0.8, 1e9], tolerated=1))
    '0.85 [0.8, 0.9]'
    """
    count = len(values)
    if count <= 2 * tolerated:
        return None
    kept = np.sort(np.asarray(values, dtype=np.float64))[tolerated : count - tolerated]
    mean = np.clip((kept / len(kept)).sum(), kept[0], kept[-1])  # this sum cannot overflow
    return RobustMean(float(mean), float(kept[0]), float(kept[-1]), count)


def robust_metrics(replies: Iterable[Mapping[str, float]], tolerated: int) -> dict[str, RobustMean]:
    """The robust mean of each metric that more than 2b̂ replies contain."""
    values: dict[str, list[float]] = {}
    for reply in replies:
        for name, value in reply.items():
            values.setdefault(name, []).append(value)
    means = {name: robust_mean(values[name], tolerated) for name in sorted(values)}
    return {name: mean for name, mean in means.items() if mean is not None}


def flatten(metrics: Mapping[str, RobustMean]) -> dict[str, float]:
    """Each metric under its name, and its range under name-low and name-high."""
    return {
        key: number
        for name, mean in metrics.items()
        for key, number in (
            (name, mean.value),
            (f"{name}-low", mean.low),
            (f"{name}-high", mean.high),
        )
    }


def as_record(metrics: Mapping[str, RobustMean]) -> MetricRecord | None:
    """The metrics as a Flower record."""
    return MetricRecord(dict(flatten(metrics))) if metrics else None


def aggregate_updates(
    settings: StrategySettings, session: Session, replies: Iterable[NodeReply]
) -> tuple[ArrayRecord | None, MetricRecord | None]:
    """Check the replies and take the server's step. Returns no arrays if the round is void."""
    round_ = session.current_round
    if session.draw is not None:
        updates = session.updates(session.draw.sampled)
        with timed(round_, "train"):
            metrics, usable = receive_updates(
                replies,
                session.received,
                updates,
                session.state.model,
                session.layout,
                settings.arrays_key,
                session.reading,
            )
        record_replies(settings, session, session.received)
        with timed(round_, "aggregate"):
            aggregate(
                round_,
                updates,
                usable,
                settings.rule,
                tolerated=session.draw.tolerated,
                server_lr=settings.server_lr,
                layout=session.layout,
                seed=session.seed,
                require_finite=True,
                exclude_suspects=settings.config["exclude"] == "evidence",
                fdr=settings.config["fdr"],
            )
        record_evidence(session)
        session.metrics["train"] = robust_metrics(metrics.values(), session.draw.tolerated)
    session.end_round()
    if round_.void is not None:
        log(WARNING, "Round %d is void, the model stays: %s", round_.round + 1, round_.void)
        return None, None
    return session.layout.record(session.state.model), as_record(session.metrics["train"])


def record_replies(settings: StrategySettings, session: Session, received: Received) -> None:
    """Record and log which replies were not used, and put nodes into quarantine."""
    ledger, round_ = session.ledger, session.current_round
    round_.missing, round_.rejected = by_number(ledger, received)
    used, invited = len(received.usable), len(received.invited)
    log(INFO, "aggregate_train: %d of %d replies can be used", used, invited)
    log_lost_replies(ledger, received)
    for node in ledger.record_round(received, round_.round, settings.quarantine):
        times = ledger.nodes[node].rejections
        log(WARNING, "Node %d is not invited any more: %d replies rejected", node, times)


def record_evidence(session: Session) -> None:
    """Record and log whose updates were left out, and who is or is no longer suspect."""
    ledger, round_ = session.ledger, session.current_round
    for number, reason in round_.excluded.items():
        log(INFO, "\t> left out: node %d (client %d): %s", ledger.node(number), number, reason)
    new, cleared = ledger.record_evidence(round_)
    log_suspects(session, new, cleared)


def by_number(ledger: Ledger, received: Received) -> tuple[dict[int, str], dict[int, str]]:
    """The reasons for missing and for rejected replies, by the nodes' numbers in rounds.jsonl."""
    missing, rejected = (
        {ledger.number(node): reason for node, reason in lost.items()}
        for lost in (received.missing, received.rejected)
    )
    return missing, rejected


def log_lost_replies(ledger: Ledger, received: Received) -> None:
    """Log the nodes whose replies were not used."""
    for outcome, lost in (("missing", received.missing), ("rejected", received.rejected)):
        for node, reason in lost.items():
            log(INFO, "\t> %s: node %d (client %d): %s", outcome, node, ledger.number(node), reason)
    if received.uninvited:
        log(WARNING, "\t> %d came from nodes that were not invited", received.uninvited)


def aggregate_evaluations(session: Session, replies: Iterable[NodeReply]) -> MetricRecord | None:
    """The robust mean of each metric in the replies to an evaluation."""
    if session.evaluation_draw is None or not session.evaluators:
        return None
    claimed: dict[int, Metrics] = {}

    def take(row: int, message: Message) -> None:
        claimed[row] = metrics_of(message)

    received = receive(replies, Received(session.evaluators), take, session.reading)
    usable = [claimed[row] for row in received.usable]
    metrics = robust_metrics(usable, session.evaluation_draw.tolerated)
    session.metrics["evaluate"] = metrics
    text = ", ".join(f"{name} {mean}" for name, mean in metrics.items()) or "no metrics"
    log(INFO, "aggregate_evaluate: %d of %d: %s", len(usable), len(session.evaluators), text)
    log_lost_replies(session.ledger, received)
    session.ledger.record_evaluation(received)
    missing, rejected = by_number(session.ledger, received)
    session.lost_evaluations = {"missing": missing, "rejected": rejected}
    return as_record(metrics)


def restore_metrics(result: Result, lines: Iterable[Mapping[str, Any]]) -> None:
    """Add the metrics of the rounds before, from the lines of rounds.jsonl, to a result."""
    for line in lines:
        for kind, target in (
            ("train", result.train_metrics_clientapp),
            ("evaluate", result.evaluate_metrics_clientapp),
        ):
            means = line["metrics"].get(kind, {})
            record = as_record({name: RobustMean(**mean) for name, mean in means.items()})
            if record is not None:
                target[line["round"] + 1] = record
