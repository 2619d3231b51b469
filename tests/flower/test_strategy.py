"""The strategy with a grid that lies in every way: the model comes out right, and the run ends."""

import json
import logging

import numpy as np
import pytest
import torch
from flwr.app import ConfigRecord, Error, Message, MetricRecord
from flwr.serverapp.strategy import Strategy

import fedro
from fake_flower import (
    FIRST,
    FakeGrid,
    Time,
    honest,
    model,
    raises,
    sends,
    silent,
    small_plan,
    weights,
)
from fedro import UserCodeError
from fedro.flower import FedRo, TooFewRepliesError
from fedro.rules import median, nnm, parse_rule, trimmed_mean
from fedro.runs import read
from fedro.server import sample
from flower_cases import BAD, arrays_as_vector, start, strategy

logging.getLogger("flwr").propagate = True  # for caplog


@pytest.mark.parametrize("kind", BAD)
def test_bad_clients_do_not_bend_the_model(kind):
    grid = FakeGrid(20, {3: BAD[kind], 11: BAD[kind]})
    result = start(strategy(), grid, 8)
    assert np.allclose(arrays_as_vector(result.arrays), 8.0)
    assert all(len(set(nodes)) == 7 for nodes in grid.invitations().values())


def test_it_is_a_strategy_of_flower_and_works_in_flowers_own_loop():
    class Plain(FakeGrid):
        def send_and_receive(self, messages, *, timeout=None):
            keys = self.push_messages(list(messages))
            return [reply for key in keys for reply in self.pull_messages([key])]

    grid = Plain(20, {0: BAD["huge"], 1: raises})
    result = Strategy.start(strategy(evaluate_clients=9), grid, model(), num_rounds=4)
    assert np.allclose(arrays_as_vector(result.arrays), 4.0)
    assert result.evaluate_metrics_clientapp[4]["eval_acc"] == pytest.approx(0.8)
    assert result.train_metrics_clientapp[1]["train_loss"] == 1.0


def test_the_step_is_the_simulators():
    def noise(message):
        node = message.metadata.dst_node_id - FIRST
        random = np.random.default_rng([node, message.content["config"]["server-round"]])
        arrays = {
            n: v + random.normal(size=v.shape).astype(v.dtype) for n, v in weights(message).items()
        }
        return sends(lambda _: arrays)(message)

    grid = FakeGrid(20, default=noise)
    result = start(strategy(server_lr=0.5, seed=3), grid, 2)
    state = torch.zeros(8)
    rule = parse_rule("nnm | trimmed_mean")
    for round in range(2):
        rows = []
        for i in sample(3, round, 20, 7):
            random = np.random.default_rng([i, round + 1])
            rows.append(np.concatenate([random.normal(size=6), random.normal(size=2)]))
        updates = torch.tensor(np.array(rows), dtype=torch.float32)
        state += 0.5 * rule(updates, b=2)
    assert np.allclose(arrays_as_vector(result.arrays), state.numpy(), atol=1e-6)


def test_clients_are_told_the_round_the_rate_and_the_steps():
    grid = FakeGrid()
    config = ConfigRecord({"lr": 0.5, "mine": "x"})
    start(strategy(), grid, 2, train_config=config)
    told = [dict(m.content["config"]) for m in grid.sent]
    assert told[0] == {"lr": 0.5, "mine": "x", "server-round": 1}
    assert told[-1]["server-round"] == 2
    assert dict(config) == {"lr": 0.5, "mine": "x"}  # the caller's own is left alone
    grid = FakeGrid()
    start(strategy(client_lr=[(0, 0.1), (1, 0.02)], local_steps=5), grid, 2)
    told = [dict(m.content["config"]) for m in grid.sent]
    assert told[0] == {"lr": 0.1, "local-steps": 5, "server-round": 1}
    assert told[-1]["lr"] == 0.02
    with pytest.raises(ValueError, match=r"train_config has lr=0\.5, and FedRo 0\.1: give one"):
        start(strategy(client_lr=0.1), FakeGrid(), train_config=config)


def test_a_round_with_too_few_replies_is_void_and_a_draw_all_the_same():
    quiet = dict.fromkeys(range(20), silent)

    class Once(FakeGrid):
        def push_messages(self, messages):
            number = messages[0].content["config"]["server-round"]
            self.behave = {FIRST + i: a for i, a in quiet.items()} if number == 2 else {}
            return super().push_messages(messages)

    strat = strategy()
    result = start(strat, Once(), 3)
    assert np.allclose(arrays_as_vector(result.arrays), 2.0)
    assert strat.session.draws == 3


def test_four_of_seven_are_void_and_five_are_not():
    for lost, moved in ((2, 1.0), (3, 0.0)):
        grid = FakeGrid(7, dict.fromkeys(range(lost), silent))
        plan = fedro.plan(clients=7, byzantine=2, rounds=1, sampled=7)
        result = start(strategy(plan=plan), grid, 1)
        assert np.allclose(arrays_as_vector(result.arrays), moved)


def test_the_run_ends_when_nobody_answers():
    time = Time()
    strat = strategy(time, max_void_rounds=2)
    with pytest.raises(TooFewRepliesError, match=r"2 rounds in a row .* 7× error 2: boom boom"):
        start(strat, FakeGrid(20, default=raises), 40)
    with pytest.raises(TooFewRepliesError, match="0 usable replies"):
        start(strat, FakeGrid(20, default=silent), 40)
    assert time.time <= 2 * 30 + 1


def test_the_run_ends_when_too_few_are_online():
    time = Time()
    grid = FakeGrid(4)
    with pytest.raises(TooFewRepliesError, match="4 nodes online, 2 may be Byzantine: no sample"):
        start(strategy(time, max_void_rounds=2, online_wait=5.0), grid, 40)
    assert grid.sent == []
    assert time.time == 10.0


def test_what_the_rule_cannot_tolerate_is_not_tried(tmp_path):
    plan = fedro.plan(clients=60, byzantine=3, rounds=20, sampled=19, rule="bulyan")
    grid = FakeGrid(14)
    strat = strategy(plan=plan, folder=tmp_path / "run", max_void_rounds=1)
    with pytest.raises(TooFewRepliesError, match="14 nodes online, 3 may be Byzantine: no sample"):
        start(strat, grid, 3)
    assert grid.sent == []
    (line,) = read(tmp_path / "run").rounds
    assert (line["available"], line["tolerated"], line["sampled"]) == (14, None, [])


def test_with_fewer_nodes_more_is_tolerated(caplog):
    plan = fedro.plan(clients=60, byzantine=6, rounds=20)
    grid = FakeGrid(40, dict.fromkeys(range(6), BAD["huge"]))
    strat = strategy(plan=plan)
    result = start(strat, grid, 10)
    assert np.allclose(arrays_as_vector(result.arrays), 10.0)
    assert strat.session.draw.tolerated > plan.tolerated
    assert "With 40 nodes online" in caplog.text


def test_the_plan_covers_so_many_draws():
    with pytest.raises(ValueError, match=r"num_rounds=51: must be from 1 to 50 \(draws that the"):
        start(strategy(), FakeGrid(), 51)
    strat = strategy(plan=small_plan(rounds=1))
    strat.configure_train(1, model(), ConfigRecord(), FakeGrid())
    strat.aggregate_train(1, [])
    with pytest.raises(ValueError, match="the plan is for 1 draw, and all are used up"):
        strat.configure_train(2, model(), ConfigRecord(), FakeGrid())


def test_quarantined_nodes_are_not_invited_and_are_still_feared(tmp_path):
    grid = FakeGrid(20, {0: BAD["nan"], 1: silent})
    strat = strategy(quarantine=2, folder=tmp_path / "run")
    start(strat, grid, 30)
    invited = [nodes for nodes in grid.invitations().values() if FIRST in nodes]
    assert len(invited) == 2
    assert strat.session.draw.available == 19
    assert strat.session.ledger.quarantined == {FIRST}  # silence is no offense
    ledger = json.loads((tmp_path / "run" / "ledger.json").read_text())
    assert ledger[str(FIRST)]["rejected"] == {"holds NaN or Inf": 2}
    assert ledger[str(FIRST + 1)]["missing"]["did not answer"] > 2


def test_nodes_in_quarantine_are_not_waited_for():
    time = Time()
    plan = fedro.plan(clients=20, byzantine=3, rounds=30, sampled=19)
    grid = FakeGrid(20, dict.fromkeys(range(3), BAD["nan"]))
    strat = strategy(time, plan=plan, quarantine=1)
    result = start(strat, grid, 4)
    assert strat.session.draw == (17, 17, 3)  # three may be bad, whoever was sent away
    assert np.allclose(arrays_as_vector(result.arrays), 4.0)
    assert time.slept == []


def test_liars_do_not_bend_the_evaluation():
    lie = honest(1.0, eval_acc=1e9)
    grid = FakeGrid(20, {0: lie, 1: lie}, default=honest(1.0, eval_acc=0.8, eval_loss=1.0))
    result = start(strategy(evaluate_clients=20, evaluate_every=2), grid, 3)
    found = result.evaluate_metrics_clientapp
    assert sorted(found) == [2, 3]  # and the last
    assert found[2]["eval_acc"] == pytest.approx(0.8)
    assert found[2]["eval_acc-high"] == 0.8
    assert "num-examples" not in found[2]


def test_statistics_take_no_part_in_distances_and_variances_stay_positive():
    arrays = model(
        **{
            "bn.running_var": np.ones(2, np.float32),
            "bn.num_batches_tracked": np.array(0),
        }
    )
    grid = FakeGrid(20, default=honest(-0.6))
    result = start(strategy(server_lr=0.5), grid, 3, arrays)
    found = {name: array.numpy() for name, array in result.arrays.items()}
    assert np.allclose(found["layer.bias"], -0.9)
    assert np.allclose(found["bn.running_var"], 0.0)  # with a step of 1, and not below zero
    assert found["bn.num_batches_tracked"] == 0


def test_a_model_that_would_overflow_stays():
    limit = np.finfo(np.float32).max
    grid = FakeGrid(20, default=sends(lambda w: {n: v + 0.9 * limit for n, v in w.items()}))
    with pytest.raises(TooFewRepliesError, match=r"NaN or Inf|too large"):
        start(strategy(server_lr=10.0, rule="trimmed_mean"), grid)


def test_a_rule_may_start_from_its_last_output():
    strat = strategy(rule="centered_clipping")
    result = start(strat, FakeGrid(), 3)
    assert strat.session.state.previous is not None
    assert np.isfinite(arrays_as_vector(result.arrays)).all()


def test_seeds_are_secret_until_the_end(tmp_path, caplog):
    strat = strategy(seed=None, folder=tmp_path / "run")
    start(strat, FakeGrid())
    seed = strat.session.seed
    assert seed > 2**64
    run = tmp_path / "run"
    assert json.loads((run / "summary.json").read_text())["seed"] == str(seed)
    assert str(seed) not in (run / "run.json").read_text() + (run / "rounds.jsonl").read_text()
    assert f"The seed of the draws was {seed}; the run used 3 draws" in caplog.messages
    assert sum(str(seed) in message for message in caplog.messages) == 1
    other = strategy(seed=None)
    start(other, FakeGrid())
    assert other.session.seed != seed


def test_the_servers_own_evaluation_counts_more(tmp_path):
    seen = []

    def evaluate(round, arrays):
        seen.append((round, float(arrays_as_vector(arrays)[0])))
        return MetricRecord({"accuracy": 0.5, "loss": 2.0, "each": [1.0]})

    strat = strategy(folder=tmp_path / "run", evaluate_clients=9)
    result = start(strat, FakeGrid(), 2, evaluate_fn=evaluate)
    assert seen == [(0, 0.0), (1, 1.0), (2, 2.0)]
    assert sorted(result.evaluate_metrics_serverapp) == [0, 1, 2]
    score = read(tmp_path / "run").rounds[0]["score"]
    assert (score["accuracy"], score["clients"], score["loss"]) == (0.5, None, 2.0)


def test_a_metric_that_fails_shows_its_line_and_the_run_is_resumed(tmp_path):
    wrong = True

    def evaluate(round, arrays):
        if round == 2 and wrong:
            raise ValueError("no test data")

    path = tmp_path / "run"
    with pytest.raises(UserCodeError) as raised:
        start(strategy(folder=path), FakeGrid(), 3, evaluate_fn=evaluate)
    lines = str(raised.value).splitlines()
    number = evaluate.__code__.co_firstlineno + 2
    assert lines == [
        "the function evaluate_fn failed in round 2:",
        f'  File "{__file__}", line {number}, in evaluate',
        '    raise ValueError("no test data")',
        "  ValueError: no test data",
        f"The run is saved in {path}: resume it.",
    ]
    assert isinstance(raised.value.__cause__, ValueError)
    wrong = False
    result = start(strategy(folder=path, resume=True), FakeGrid(), 3, evaluate_fn=evaluate)
    whole = start(strategy(), FakeGrid(), 3)
    assert np.array_equal(arrays_as_vector(result.arrays), arrays_as_vector(whole.arrays))
    assert [line["round"] for line in read(path).rounds] == [0, 1, 2]


def test_a_run_that_came_to_nothing_says_so(tmp_path, caplog):
    strat = strategy(folder=tmp_path / "run", max_void_rounds=99)
    start(strat, FakeGrid(default=BAD["nan"]), 3)
    problem = read(tmp_path / "run").summary["problem"]
    assert problem.startswith("All 3 rounds were void")
    assert "holds NaN or Inf" in problem
    assert problem in caplog.messages


def test_runs_can_be_repeated_where_nodes_can_be_ordered():
    def shuffled(seed):
        grid = FakeGrid(default=lambda m: honest(np.float32(place[m.metadata.dst_node_id]))(m))
        ids = np.random.default_rng(seed).permutation(20)
        place = {FIRST + int(node): i for i, node in enumerate(ids)}
        strat = strategy(order=lambda _, nodes: sorted(nodes, key=place.__getitem__))
        return arrays_as_vector(start(strat, grid, 4).arrays)

    assert np.array_equal(shuffled(0), shuffled(1))
    with pytest.raises(ValueError, match="each once"):
        start(strategy(order=lambda _, nodes: nodes[:9]), FakeGrid())


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"plan": None}, "fedro.plan"),
        ({"rule": "trimmed_mean(b=1)"}, "names b"),
        ({"plan": small_plan(rule=None)}, "the plan is for no rule"),
        ({"rule": "fltrust"}, "needs an update from the server's own data"),
        ({"rule": "bulyan"}, "4b"),
        ({"rule": "medan"}, "median"),
        ({"server_lr": 0.0}, "server_lr"),
        ({"client_lr": -1.0}, "client_lr"),
        ({"local_steps": 0}, "local_steps"),
        ({"client_lr": "1/K"}, "needs K: give local_steps too"),
        ({"seed": -1}, "seed"),
        ({"max_void_rounds": 0}, "max_void_rounds"),
        ({"online_wait": -1}, "online_wait"),
        ({"quarantine": 0}, "quarantine"),
        ({"evaluate_clients": -1}, "evaluate_clients"),
    ],
)
def test_wrong_options_are_named(options, reason):
    with pytest.raises(ValueError, match=reason):
        strategy(**options)


def test_a_rule_can_be_text_or_an_object():
    rule = nnm() | trimmed_mean()
    assert strategy(rule=rule).settings.config == strategy(rule=str(rule)).settings.config
    results = [start(strategy(rule=r), FakeGrid(), 2).arrays for r in (rule, str(rule))]
    assert np.array_equal(*map(arrays_as_vector, results))
    for wrong in (nnm(), 5):
        with pytest.raises((TypeError, ValueError)):
            strategy(rule=wrong)


def test_waits_without_end_are_refused():
    for timeout in (None, float("inf"), 0):
        with pytest.raises(ValueError, match="timeout"):
            strategy().start(FakeGrid(), model(), timeout=timeout)


def test_plain_averaging_is_warned_of(caplog):
    FedRo(plan=small_plan(rule=None), rule="mean")
    assert "withstands no Byzantine client" in caplog.text


def test_the_rule_is_the_plans_and_a_plan_for_another_is_refused(caplog):
    plan = fedro.plan(clients=150, byzantine=15, rounds=500, rule="median")
    same = fedro.plan(clients=150, byzantine=15, rounds=500, rule="krum")
    FedRo(plan=same, rule="krum(original=False)")  # the default, written out
    assert FedRo(plan=plan).settings.rule == FedRo(plan=plan, rule=median()).settings.rule
    message = (
        r"rule='krum', but the plan is for 'median', and its κ does not hold for another rule: "
        r"leave rule out, or plan with fedro.plan\(rule='krum', …\)"
    )
    with pytest.raises(ValueError, match=message):
        FedRo(plan=plan, rule="krum")
    FedRo(plan=plan).summary()
    assert "κ = 2.6 is proved for this rule; the best possible for any rule is 1" in caplog.text


def test_hooks_out_of_order_are_named():
    with pytest.raises(ValueError, match="configure_train comes first"):
        strategy().aggregate_train(1, [])


def test_what_the_superlink_says_of_a_node_is_put_down_to_that_node(tmp_path):
    def gone(code):
        def act(message):
            reply = Message(Error(code, "gone"), reply_to=message)
            reply.metadata.__dict__["_src_node_id"] = 1  # the SuperLink answers in its place
            return reply

        return act

    grid = FakeGrid(20, {3: gone(5), 11: gone(8)})
    result = start(strategy(plan=small_plan(sampled=20), folder=tmp_path / "run"), grid, 1)
    assert np.allclose(arrays_as_vector(result.arrays), 1.0)
    (line,) = read(tmp_path / "run").rounds
    assert line["missing"] == {"3": "error 5: gone", "11": "error 8: gone"}


def test_messages_do_not_outlive_their_round_by_much():
    grid = FakeGrid()
    start(strategy(evaluate_clients=9), grid, 1)
    assert {m.metadata.ttl for m in grid.sent} == {30 + 600}  # the timeout, and clocks that differ


def late(seconds, time):
    """Answers after some seconds."""

    def act(message):
        begin = time.time
        reply = honest(1.0)(message)
        return lambda: reply if time.time >= begin + seconds else None

    return act


class LateGrid(FakeGrid):
    """Replies may be functions that give a reply, or None if it is not there yet."""

    def pull_messages(self, message_ids):
        for key in message_ids:
            reply = self.replies[key]
            if callable(reply):
                found = reply()
                if found is None:
                    return []
                self.replies[key] = found
        return super().pull_messages(message_ids)


def rounds_with_quorum(behave, tmp_path, **options):
    time = Time()
    plan = fedro.plan(clients=10, byzantine=2, rounds=3, sampled=10)
    strat = strategy(time, plan=plan, folder=tmp_path / "run", **options)
    result = start(strat, LateGrid(10, {i: act(time) for i, act in behave.items()}), 3)
    return time, result, read(tmp_path / "run").rounds


def slow(seconds):
    return lambda time: late(seconds, time)


def test_with_a_quorum_a_round_goes_on_without_the_late(tmp_path):
    behave = {8: slow(20), 9: slow(25)}
    time, result, lines = rounds_with_quorum(behave, tmp_path, quorum=8, quorum_after=3.0)
    assert 9.0 <= time.time <= 12.0
    assert np.allclose(arrays_as_vector(result.arrays), 3.0)
    reason = "was late: after 3 s, 8 replies were enough"
    assert [line["missing"] for line in lines] == [{"8": reason, "9": reason}] * 3


def test_a_quorum_waits_until_its_time_and_for_enough(tmp_path):
    behave = {7: slow(12), 8: slow(20), 9: slow(25)}
    time, _, lines = rounds_with_quorum(behave, tmp_path, quorum=8, quorum_after=3.0)
    assert 36.0 <= time.time <= 42.0  # three times as long as the eighth reply takes
    assert all(len(line["missing"]) == 2 for line in lines)


def test_bad_replies_do_not_fill_a_quorum(tmp_path):
    behave = {
        0: lambda time: BAD["nan"],
        1: lambda time: BAD["wrong"],
        7: slow(12),
        8: slow(14),
        9: slow(25),
    }
    time, _, lines = rounds_with_quorum(behave, tmp_path, quorum=8, quorum_after=3.0)
    assert time.time > 3 * 25  # eight good replies are there when the last one is
    assert all(line["missing"] == {} for line in lines)


def test_what_a_quorum_costs_is_logged(caplog):
    plan = small_plan()
    strategy(plan=plan, quorum=5, quorum_after=60).summary()
    assert any("after 60 s, 5 of 7 replies are enough" in m for m in caplog.messages)
    kappa = parse_rule(plan.rule).kappa(5, 2)
    assert any(
        f"κ = {kappa:.4g} is proved for this rule; late honest" in m for m in caplog.messages
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"quorum": 4, "quorum_after": 1}, "between 5 and 7 replies"),
        ({"quorum": 8, "quorum_after": 1}, "between 5 and 7 replies"),
        ({"quorum": 5}, "give both"),
        ({"quorum_after": 5.0}, "give both"),
        ({"quorum": 5, "quorum_after": 0}, "quorum_after > 0"),
    ],
)
def test_a_quorum_that_makes_no_sense_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        strategy(**options)


@pytest.mark.parametrize("returned", ["0.9", 0.9])
def test_an_evaluation_function_must_return_metrics(returned):
    with pytest.raises(ValueError, match="it must return a MetricRecord"):
        start(
            strategy(), FakeGrid(), 1, evaluate_fn=lambda round, arrays: returned if round else None
        )


def test_the_log_has_what_flower_users_know(caplog, tmp_path):
    def evaluate(round, arrays):
        return MetricRecord({"accuracy": 0.25 + round})

    options = {"folder": tmp_path / "run", "resume": True, "evaluate_clients": 7}
    start(strategy(**options), FakeGrid(), 2, evaluate_fn=evaluate)
    text = "\n".join(caplog.messages)
    assert "Initial global evaluation results: {'accuracy': 0.25}" in text
    assert "Aggregated MetricRecord: {'train_loss': 1.0" in text
    assert "Aggregated MetricRecord: {'eval_acc': 0.8" in text
    assert "Final results:" in text
    assert "Aggregated ClientApp-side Train Metrics:" in text


def test_a_resumed_run_returns_the_metrics_of_all_rounds(tmp_path):
    options = {"folder": tmp_path / "run", "resume": True, "evaluate_clients": 7}
    whole = start(strategy(**{**options, "folder": tmp_path / "whole"}), FakeGrid(), 4)
    start(strategy(**options), FakeGrid(), 2)
    (tmp_path / "run" / "summary.json").unlink()
    result = start(strategy(**options), FakeGrid(), 4)
    assert sorted(result.train_metrics_clientapp) == [1, 2, 3, 4]
    for kind in ("train_metrics_clientapp", "evaluate_metrics_clientapp"):
        assert {k: dict(v) for k, v in getattr(result, kind).items()} == {
            k: dict(v) for k, v in getattr(whole, kind).items()
        }


def test_arrays_that_cannot_be_trained_are_named(caplog):
    codes, ids = np.zeros((2, 2), np.int8), np.arange(3)
    more = {"codes": codes, "position_ids": ids, "n.num_batches_tracked": np.array(0)}
    start(strategy(), FakeGrid(), 1, model(**more))
    (text,) = [m for m in caplog.messages if m.startswith("Not trained")]
    assert "'codes', 'position_ids'" in text
    assert "num_batches_tracked" not in text
    with pytest.raises(ValueError, match=r"'phase' has the type complex64, which cannot"):
        start(strategy(), FakeGrid(), 1, model(phase=np.zeros(2, np.complex64)))
