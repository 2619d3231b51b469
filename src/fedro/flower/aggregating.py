"""What becomes of the replies: a robust step, robust metrics, and notes on who sent what."""

from collections.abc import Iterable
from logging import INFO, WARNING

from flwr.app import ArrayRecord, Message, MetricRecord
from flwr.common.logger import log

from fedro.flower.evaluation import Spread, flat, robust_metrics
from fedro.flower.exchange import Answer
from fedro.flower.ledger import Ledger
from fedro.flower.replies import Metrics, Received, metrics_of, receive, receive_updates
from fedro.flower.session import Session
from fedro.flower.settings import Settings
from fedro.server import Round, aggregate, timed


def take_updates(
    settings: Settings, session: Session, answers: Iterable[Answer]
) -> tuple[ArrayRecord | None, MetricRecord | None]:
    """Screen the replies and step; no arrays if the round is void."""
    done = session.under_way
    if session.draw is not None:
        updates = session.updates(session.draw.sampled)
        with timed(done, "train"):
            received, metrics, usable = receive_updates(
                answers,
                session.invited,
                updates,
                session.state.model,
                session.layout,
                settings.arrays_key,
            )
        note(settings, session, done, received)
        with timed(done, "aggregate"):
            aggregate(
                done,
                updates,
                usable,
                settings.rule,
                tolerated=session.draw.tolerated,
                server_lr=settings.server_lr,
                layout=session.layout,
                seed=session.seed,
                require_finite=True,
            )
        session.metrics["train"] = robust_metrics(metrics.values(), session.draw.tolerated)
    session.end()
    if done.void is not None:
        log(WARNING, "Round %d is void, the model stays: %s", done.round + 1, done.void)
        return None, None
    return session.layout.record(session.state.model), as_record(session.metrics["train"])


def note(settings: Settings, session: Session, done: Round, received: Received) -> None:
    """Write down and tell which replies were not used."""
    ledger = session.ledger
    done.missing, done.rejected = numbered(ledger, received)
    used, invited = len(received.usable), len(received.invited)
    log(INFO, "aggregate_train: %d of %d replies can be used", used, invited)
    tell_lost(ledger, received)
    for node in ledger.note(received, done.round, settings.quarantine):
        times = ledger.entries[node].refusals
        log(WARNING, "Node %d is not invited any more: %d replies rejected", node, times)


def numbered(ledger: Ledger, received: Received) -> tuple[dict[int, str], dict[int, str]]:
    """Who is missing and who was rejected, and why, by the numbers of the record."""
    missing, rejected = (
        {ledger.number(node): why for node, why in lost.items()}
        for lost in (received.missing, received.rejected)
    )
    return missing, rejected


def tell_lost(ledger: Ledger, received: Received) -> None:
    """Tell whose replies were not used."""
    for word, lost in (("missing", received.missing), ("rejected", received.rejected)):
        for node, why in lost.items():
            log(INFO, "\t> %s: node %d (client %d): %s", word, node, ledger.number(node), why)
    if received.uninvited:
        log(WARNING, "\t> %d came from nodes that were not invited", received.uninvited)


def take_metrics(session: Session, answers: Iterable[Answer]) -> MetricRecord | None:
    """What the replies claim, without the b̂ lowest and highest of each metric."""
    if session.evaluation is None or not session.evaluators:
        return None
    claimed: dict[int, Metrics] = {}

    def take(row: int, message: Message) -> None:
        claimed[row] = metrics_of(message)

    received = receive(answers, session.evaluators, take)
    usable = [claimed[row] for row in received.usable]
    found = robust_metrics(usable, session.evaluation.tolerated)
    session.metrics["evaluate"] = found
    told = ", ".join(f"{name} {spread}" for name, spread in found.items()) or "no metrics"
    log(INFO, "aggregate_evaluate: %d of %d: %s", len(usable), len(session.evaluators), told)
    tell_lost(session.ledger, received)
    session.ledger.note_evaluation(received)
    session.unevaluated = dict(
        zip(("missing", "rejected"), numbered(session.ledger, received), strict=True)
    )
    return as_record(found)


def as_record(metrics: dict[str, Spread]) -> MetricRecord | None:
    """The metrics as Flower keeps them."""
    return MetricRecord(dict(flat(metrics))) if metrics else None
