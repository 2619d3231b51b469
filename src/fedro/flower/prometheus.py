"""Metrics of a run for Prometheus, served on a port of this machine."""

import contextlib
import os
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from fedro.common.checks import count
from fedro.flower.messaging import one_line
from fedro.planning import Plan

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry, Counter

    from fedro.flower.session import Session

ADDRESS = "127.0.0.1"  # others reach the metrics only through what the operator sets up
MAX_METRIC_NAMES = 20  # clients name their metrics
OTHER = "other"
# Labels are never text from a node: the beginning of a reason, which is ours, decides its class.
MISSING_REASONS = {
    "did not answer": "no_answer",
    "was late": "late",
    "error ": "client_error",
    "did not finish": "incomplete",
    "nothing could be sent": "not_sent",
    "could not be read": "unreadable",
    "the SuperLink could not be reached": "no_superlink",
}
REJECTED_REASONS = {
    "holds NaN or Inf": "not_finite",
    "answered twice": "answered_twice",
    "could not be read": "unreadable",
    "not read": "stopped_the_server",
    "is not a message": "unreadable",
    "was not sent completely": "incomplete",
    "describes its arrays": "too_large",
    "grows to more than": "too_large",
    "has more than": "too_large",
    "has no arrays": "does_not_fit",
    "has ": "too_large",  # too many parts
    "holds ": "does_not_fit",
    "lacks ": "does_not_fit",
    "'": "does_not_fit",  # the name of an array of the model
}
PLANNED = {
    "fedro_rounds_planned": "The number of rounds of the complete run.",
    "fedro_draws_allowed": "The number of draws that the plan is for.",
    "fedro_tolerated_planned": "The b̂ of the plan.",
    "fedro_margin_planned": "The margin of a round of the plan without a lost reply, n̂ − 2b̂.",
}
CURRENT = {
    "fedro_round": "The number of rounds that are finished.",
    "fedro_draws_used": "The number of draws until now.",
    "fedro_nodes_online": "The nodes that were online in the last round.",
    "fedro_invited": "The nodes that were invited to train in the last round.",
    "fedro_usable": "The replies that were usable in the last round.",
    "fedro_missing": "The replies that were missing in the last round.",
    "fedro_rejected": "The replies that were rejected in the last round.",
    "fedro_margin": "The usable replies minus 2b̂ in the last round; it is void at 0 or less.",
    "fedro_tolerated": "The b̂ of the last round that invited anybody.",
    "fedro_void_rounds_in_a_row": "The number of void rounds at the end of the run.",
    "fedro_suspects": "The number of nodes that are suspected to be Byzantine.",
    "fedro_last_round_timestamp_seconds": "When the last round ended, or when the server app began "
    "if none has, in seconds since 1970.",
}


class RunMetrics:
    """The metrics of one run, and the server that shows them under ``/metrics``.

    Args:
        port: The port on the loopback interface.
        plan: The plan of the run.

    Raises:
        OSError: Another program uses the port.
    """

    def __init__(self, port: int, plan: Plan) -> None:
        from prometheus_client import CollectorRegistry, Counter, Gauge, start_http_server

        self.plan, self.registry = plan, CollectorRegistry()
        self._gauges = {
            name: Gauge(name, text, registry=self.registry)
            for name, text in {**PLANNED, **CURRENT}.items()
        }
        self._seconds = Gauge(
            "fedro_round_seconds",
            "The time that each phase of the last round took.",
            ["phase"],
            registry=self.registry,
        )
        self._evaluation = Gauge(
            "fedro_evaluation",
            "The latest evaluation: the robust mean of a metric, and its range.",
            ["by", "metric", "statistic"],
            registry=self.registry,
        )
        self._void = Counter("fedro_void_rounds", "Void rounds.", registry=self.registry)
        self._lost = {
            outcome: _counter(Counter, outcome, classes, self.registry)
            for outcome, classes in (("missing", MISSING_REASONS), ("rejected", REJECTED_REASONS))
        }
        self._metric_names: set[str] = set()
        self._set_planned()
        try:
            self._server, self._thread = start_http_server(port, ADDRESS, self.registry)
        except OSError as error:
            raise OSError(
                error.errno,
                f"metrics_port={port}: cannot listen on {ADDRESS}:{port}, "
                f"{os.strerror(error.errno or 0)}. Choose another port, or stop what uses this one",
            ) from error

    def close(self) -> None:
        """Stop the server."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def begin(self, session: "Session", rounds: int) -> None:
        """Show where the run begins or goes on."""
        self._set(
            fedro_rounds_planned=rounds,
            fedro_round=session.state.round,
            fedro_draws_used=session.draws,
        )

    def record_round(self, session: "Session") -> None:
        """Show the round that has just ended."""
        line = session.line()
        self._set(
            fedro_round=session.state.round,
            fedro_draws_used=session.draws,
            fedro_void_rounds_in_a_row=session.void_rounds,
            fedro_last_round_timestamp_seconds=time.time(),
        )
        self._void.inc(line["void"] is not None)
        for phase, seconds in line["seconds"].items():
            self._seconds.labels(phase).set(seconds)
        self._record_replies(line)
        self._record_evaluation(line)
        if "suspects" in line and line["void"] is None:  # a void round decides nothing
            self._set(fedro_suspects=len(line["suspects"] or ()))

    def _set_planned(self) -> None:
        plan = self.plan
        self._set(
            fedro_draws_allowed=plan.problem.draws,
            fedro_tolerated_planned=plan.tolerated,
            fedro_margin_planned=plan.sampled - 2 * plan.tolerated,
            fedro_last_round_timestamp_seconds=time.time(),
        )

    def _set(self, **values: float) -> None:
        for name, value in values.items():
            self._gauges[name].set(value)

    def _record_replies(self, line: Mapping[str, Any]) -> None:
        missing, rejected = len(line["missing"]), len(line["rejected"])
        invited = len(line["sampled"])
        usable = invited - missing - rejected
        self._set(
            fedro_nodes_online=line["available"],
            fedro_invited=invited,
            fedro_usable=usable,
            fedro_missing=missing,
            fedro_rejected=rejected,
        )
        tolerated = line["tolerated"]  # None if nobody was invited
        if tolerated is not None:
            self._set(fedro_tolerated=tolerated)
        bound = 2 * (self.plan.tolerated if tolerated is None else tolerated)
        self._set(fedro_margin=usable - bound)
        for outcome, classes in (("missing", MISSING_REASONS), ("rejected", REJECTED_REASONS)):
            for reason in line[outcome].values():
                self._lost[outcome].labels(reason_class(reason, classes)).inc()

    def _record_evaluation(self, line: Mapping[str, Any]) -> None:
        for name, mean in line["metrics"].get("evaluate", {}).items():
            for statistic in ("value", "low", "high"):
                self._evaluated("clients", name, statistic, mean[statistic])
        score = line.get("score") or {}
        if score.get("accuracy") is not None:  # only the server's own data give this
            for name in ("accuracy", "loss"):
                self._evaluated("server", name, "value", score[name])

    def _evaluated(self, by: str, name: str, statistic: str, value: float) -> None:
        known = name in self._metric_names or len(self._metric_names) < MAX_METRIC_NAMES
        if known:
            self._metric_names.add(name)
            self._evaluation.labels(by, one_line(name, 60), statistic).set(value)


def _counter(
    kind: "type[Counter]", outcome: str, classes: Mapping[str, str], registry: "CollectorRegistry"
) -> "Counter":
    """A counter of lost replies by class of reason; all classes are there from the start."""
    text = f"The {outcome} replies, by the class of the reason."
    counter = kind(f"fedro_{outcome}_replies", text, ["reason"], registry=registry)
    for name in {*classes.values(), OTHER}:
        counter.labels(name)
    return counter


def reason_class(reason: str, classes: Mapping[str, str]) -> str:
    """The class of a reason for a lost reply, one of a few.

    >>> reason_class("error 2: out of memory", MISSING_REASONS)
    'client_error'
    """
    return next((name for start, name in classes.items() if reason.startswith(start)), OTHER)


def checked_port(port: int | None) -> int | None:
    """The port of the metrics, if it is one and prometheus_client is there."""
    if port is None:
        return None
    try:
        import prometheus_client  # noqa: F401
    except ImportError:
        raise ImportError(
            f"metrics_port={port} needs prometheus_client: pip install 'fedro[prometheus]'"
        ) from None
    return count("metrics_port", port, 1, 65535)


@contextlib.contextmanager
def serving(port: int | None, plan: Plan) -> Iterator[RunMetrics | None]:
    """Serve metrics during the block; without a port, there are none."""
    if port is None:
        yield None
        return
    with contextlib.closing(RunMetrics(port, plan)) as metrics:
        yield metrics
