"""Metrics for Prometheus, scraped over HTTP while a run is going on."""

import errno
import re
import socket
import sys
import urllib.request
from contextlib import closing

import pytest
import yaml
from flwr.app import Error, Message
from prometheus_client.parser import text_string_to_metric_families

from fake_flower import FakeGrid, honest, raises, silent, small_plan
from fedro.flower import TooFewRepliesError
from fedro.flower.prometheus import (
    MAX_METRIC_NAMES,
    MISSING_REASONS,
    OTHER,
    REJECTED_REASONS,
    RunMetrics,
)
from fedro.runs import read
from flower_app import APP
from flower_cases import BAD, start, strategy


@pytest.fixture
def port():
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def scrape(port):
    """The value of every sample, by name and labels."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as reply:
        text = reply.read().decode()
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def value(samples, name, **labels):
    return samples[(name, *sorted(labels.items()))]


class Scraped(FakeGrid):
    """Scrapes the metrics when a round begins."""

    def __init__(self, port, *args):
        super().__init__(*args)
        self.port, self.scraped = port, {}

    def get_node_ids(self):
        self.scraped[len(self.scraped)] = scrape(self.port)
        return super().get_node_ids()


def is_listening(port):
    with closing(socket.socket()) as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def test_every_round_is_shown(tmp_path, port):
    grid = Scraped(port, 20, {0: BAD["nan"], 1: raises, 2: silent, 3: BAD["wrong"]})
    run = tmp_path / "run"
    start(strategy(folder=run, metrics_port=port), grid, 12)
    before, lines = grid.scraped[0], read(run).rounds
    assert value(before, "fedro_round") == value(before, "fedro_draws_used") == 0
    assert value(before, "fedro_rounds_planned") == 12
    assert value(before, "fedro_draws_allowed") == 50
    assert value(before, "fedro_tolerated_planned") == 2
    assert value(before, "fedro_margin_planned") == 7 - 2 * 2
    totals = {"missing": 0, "rejected": 0}
    for number, line in enumerate(lines[:-1], 1):
        seen = grid.scraped[number]
        lost = {outcome: len(line[outcome]) for outcome in totals}
        usable = 7 - lost["missing"] - lost["rejected"]
        assert value(seen, "fedro_round") == value(seen, "fedro_draws_used") == number
        assert value(seen, "fedro_nodes_online") == 20
        assert value(seen, "fedro_invited") == 7
        assert value(seen, "fedro_usable") == usable
        assert value(seen, "fedro_margin") == usable - 4
        assert value(seen, "fedro_tolerated") == 2
        assert value(seen, "fedro_void_rounds_in_a_row") == 0
        for outcome in totals:
            totals[outcome] += lost[outcome]
            assert value(seen, f"fedro_{outcome}") == lost[outcome]
            counted = [v for key, v in seen.items() if key[0] == f"fedro_{outcome}_replies_total"]
            assert sum(counted) == totals[outcome]
        for phase, seconds in line["seconds"].items():
            assert value(seen, "fedro_round_seconds", phase=phase) == pytest.approx(seconds)
        times = [
            value(grid.scraped[n], "fedro_last_round_timestamp_seconds")
            for n in (number - 1, number)
        ]
        assert times[0] < times[1]
    assert min(totals.values()) > 0
    last = grid.scraped[11]
    assert value(last, "fedro_missing_replies_total", reason="no_answer") > 0
    assert value(last, "fedro_missing_replies_total", reason="client_error") > 0
    assert value(last, "fedro_rejected_replies_total", reason="not_finite") > 0
    assert value(last, "fedro_rejected_replies_total", reason="does_not_fit") > 0


def test_evaluations_are_shown_with_their_range(port):
    grid = Scraped(port, 20, {}, honest(1.0, eval_acc=0.75))
    by_server = {"evaluate_fn": lambda round, arrays: {"accuracy": round / 10, "loss": 0.5}}
    start(strategy(evaluate_clients=9, metrics_port=port), grid, 3, **by_server)
    seen = list(grid.scraped.values())[-1]
    for statistic in ("value", "low", "high"):
        labels = {"by": "clients", "metric": "eval_acc", "statistic": statistic}
        assert value(seen, "fedro_evaluation", **labels) == 0.75
    labels = {"by": "server", "metric": "accuracy", "statistic": "value"}
    assert value(seen, "fedro_evaluation", **labels) == 0.2  # after round 2


def test_void_rounds_are_counted(port):
    class Deaf(Scraped):
        def push_messages(self, messages):
            self.default = silent if len(self.scraped) in (2, 3) else honest(1.0)
            return super().push_messages(messages)

    grid = Deaf(port)
    start(strategy(metrics_port=port), grid, 5)
    in_a_row = [value(seen, "fedro_void_rounds_in_a_row") for seen in grid.scraped.values()]
    total = [value(seen, "fedro_void_rounds_total") for seen in grid.scraped.values()]
    assert in_a_row == [0, 0, 1, 2, 0]
    assert total == [0, 0, 1, 2, 2]
    assert value(grid.scraped[3], "fedro_margin") == -4


def test_a_resumed_run_begins_where_it_was(tmp_path, port):
    options = {"folder": tmp_path / "run", "resume": True, "metrics_port": port}
    with pytest.raises(TooFewRepliesError):
        start(strategy(**options), FakeGrid(default=silent), 6)
    grid = Scraped(port)
    start(strategy(**options), grid, 6)
    assert value(grid.scraped[0], "fedro_round") == 3
    assert value(grid.scraped[0], "fedro_draws_used") == 3


def test_nodes_choose_no_labels(port):
    """Neither with what they call an error nor, beyond a limit, with the names of metrics."""

    def hostile(message):
        round, node = message.content["config"]["server-round"], message.metadata.dst_node_id
        if message.metadata.message_type == "evaluate":
            return honest(1.0, **{f'mine\n{round}"}}': 1.0})(message)
        if node % 5 == 0:
            return Message(Error(round, f'"}} injected {round} {node}\n# TYPE'), reply_to=message)
        return honest(1.0)(message)

    grid = Scraped(port, 20, {}, hostile)
    rounds = MAX_METRIC_NAMES + 10
    start(strategy(metrics_port=port, evaluate_clients=9), grid, rounds)
    first, last = grid.scraped[2], list(grid.scraped.values())[-1]
    names = {dict(key[1:])["metric"] for key in last if key[0] == "fedro_evaluation"}
    assert len(names) == MAX_METRIC_NAMES
    assert all(name.isprintable() for name in names)
    for outcome, classes in (("missing", MISSING_REASONS), ("rejected", REJECTED_REASONS)):
        reasons = {
            dict(key[1:])["reason"] for key in last if key[0] == f"fedro_{outcome}_replies_total"
        }
        assert reasons == {*classes.values(), OTHER}
    without = {key for key in last if key[0] != "fedro_evaluation"}
    assert without == {key for key in first if key[0] != "fedro_evaluation"}


@pytest.mark.parametrize("trouble", [None, KeyboardInterrupt(), OSError("gone")])
def test_the_server_stops_with_the_run(port, trouble):
    class Grid(FakeGrid):
        def push_messages(self, messages):
            assert is_listening(port)
            if trouble is not None:
                raise trouble
            return super().push_messages(messages)

    strat = strategy(metrics_port=port, max_void_rounds=1)
    if trouble is None:
        start(strat, Grid(), 2)
    else:
        with pytest.raises((KeyboardInterrupt, TooFewRepliesError)):
            start(strat, Grid(), 2)
    assert not is_listening(port)
    assert not strat._metrics._thread.is_alive()
    RunMetrics(port, small_plan()).close()  # the port is free


def test_an_open_connection_does_not_hold_the_run_up(port):
    metrics = RunMetrics(port, small_plan())
    with closing(socket.create_connection(("127.0.0.1", port))) as client:
        client.sendall(b"GET /met")
        metrics.close()


def test_it_listens_on_the_loopback_interface_only(port):
    with closing(RunMetrics(port, small_plan())) as metrics:
        assert metrics._server.server_address == ("127.0.0.1", port)


def test_a_port_in_use(tmp_path, port):
    with closing(socket.socket()) as other:
        other.bind(("127.0.0.1", port))
        other.listen()
        with pytest.raises(OSError, match=f"metrics_port={port}: cannot listen on .* in use") as e:
            start(strategy(folder=tmp_path / "run", metrics_port=port), FakeGrid())
        assert e.value.errno == errno.EADDRINUSE
    assert not (tmp_path / "run").exists()  # nothing was begun


@pytest.mark.parametrize("bad", [0, -1, 65536, True, "9464", 94.5])
def test_what_is_no_port(bad):
    with pytest.raises(ValueError, match=r"metrics_port=.*from 1 to 65535"):
        strategy(metrics_port=bad)


def test_without_the_library(monkeypatch):
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(ImportError, match=r"metrics_port=9464 needs .*'fedro\[prometheus\]'"):
        strategy(metrics_port=9464)
    start(strategy(), FakeGrid(), 1)


def test_suspects_are_counted_once_they_are_recorded(port):
    strat = strategy()
    start(strat, FakeGrid(), 1)
    line = strat.session.line()
    with closing(RunMetrics(port, small_plan())) as metrics:
        strat.session.line = lambda: {**line, "suspects": [3, 8]}
        metrics.record_round(strat.session)
        assert value(scrape(port), "fedro_suspects") == 2


ALERTS = APP / "deploy" / "alerts.yaml"


def test_every_alert_uses_metrics_that_exist(port):
    with closing(RunMetrics(port, small_plan())):
        names = {key[0] for key in scrape(port)}
    (group,) = yaml.safe_load(ALERTS.read_text())["groups"]
    rules = {rule["alert"]: rule for rule in group["rules"]}
    assert len(rules) == len(group["rules"]) == 9
    for name, rule in rules.items():
        used = set(re.findall(r"\bfedro_\w+", rule["expr"]))
        assert used <= names, name
        assert used or "up{" in rule["expr"]
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert rule["annotations"].keys() == {"summary", "action"}


def test_the_port_in_the_example_is_the_one_in_the_documentation():
    assert "127.0.0.1:9464" in ALERTS.read_text()
