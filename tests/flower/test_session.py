"""What is recorded of a run with Flower, and how it is resumed and rolled back."""

import json
import logging

import numpy as np
import pytest
import torch

from fake_flower import (
    FIRST,
    FakeGrid,
    honest,
    model,
    raises,
    silent,
)
from fedro.flower import TooFewRepliesError
from fedro.runs import Lock, RunFolderError, read, roll_back
from fedro.server import State
from fedro.simulation.round import Round
from flower_cases import BAD, arrays_as_vector, start, strategy

logging.getLogger("flwr").propagate = True  # for caplog


class Power(FakeGrid):
    """The server is switched off when a round begins."""

    def __init__(self, dies_in, **options):
        super().__init__(20, **options)
        self.dies_in = dies_in

    def push_messages(self, messages):
        if messages[0].content["config"]["server-round"] == self.dies_in:
            raise KeyboardInterrupt
        return super().push_messages(messages)


def wild(message):
    round, node = message.content["config"]["server-round"], message.metadata.dst_node_id - FIRST
    return honest(np.float32(np.sin(7 * node + round)))(message)


@pytest.mark.parametrize("every", [1, 2, 100])
@pytest.mark.parametrize("rule", ["nnm | trimmed_mean", "centered_clipping"])
def test_a_run_goes_on_where_it_was_cut(tmp_path, every, rule):
    whole = strategy(folder=tmp_path / "whole", rule=rule)
    expected = start(whole, FakeGrid(default=wild), 6)
    options = {"folder": tmp_path / "cut", "rule": rule, "checkpoint_every": every, "resume": True}
    with pytest.raises(KeyboardInterrupt):
        start(strategy(**options), Power(4, default=wild), 6)
    assert not (tmp_path / "cut" / "summary.json").exists()
    again = strategy(**options)
    grid = FakeGrid(default=wild)
    result = start(again, grid, 6)
    assert min(grid.invitations()) == 4
    assert np.array_equal(arrays_as_vector(result.arrays), arrays_as_vector(expected.arrays))
    assert again.session.ledger.nodes == whole.session.ledger.nodes
    assert again.session.draws == 6
    lines = [
        [{k: v for k, v in line.items() if k != "seconds"} for line in read(tmp_path / n).rounds]
        for n in ("whole", "cut")
    ]
    assert lines[0] == lines[1]


def test_a_secret_seed_is_kept_from_the_first_draw_on(tmp_path):
    options = {"folder": tmp_path / "run", "seed": None, "resume": True}
    cut = strategy(**options)
    with pytest.raises(KeyboardInterrupt):
        start(cut, Power(1), 2)
    again = strategy(**options)
    start(again, FakeGrid(), 2)
    assert again.session.seed == cut.session.seed


def test_a_complete_run_is_not_run_again(tmp_path):
    options = {"folder": tmp_path / "run", "resume": True}
    first = start(strategy(**options), FakeGrid(), 2)
    grid = FakeGrid()
    again = start(strategy(**options), grid, 2)
    assert grid.sent == []
    assert np.array_equal(arrays_as_vector(first.arrays), arrays_as_vector(again.arrays))
    with pytest.raises(RunFolderError, match="holds a run"):
        start(strategy(folder=tmp_path / "run"), FakeGrid())


def test_a_run_is_resumed_with_the_same_plan_and_model_only(tmp_path):
    options = {"folder": tmp_path / "run", "resume": True}
    with pytest.raises(KeyboardInterrupt):
        start(strategy(**options), Power(2), 4)
    with pytest.raises(RunFolderError, match="rule"):
        start(strategy(**options, rule="median"), FakeGrid(), 4)
    with pytest.raises(RunFolderError, match="model"):
        start(strategy(**options), FakeGrid(), 4, model(more=np.zeros(1, np.float32)))
    start(strategy(**options), FakeGrid(), 5)


def test_a_run_that_was_given_up_can_be_resumed(tmp_path):
    options = {"folder": tmp_path / "run", "resume": True, "max_void_rounds": 2}
    with pytest.raises(TooFewRepliesError, match=r"The run is saved in .*run: resume it"):
        start(strategy(**options), FakeGrid(default=silent), 6)
    strat = strategy(**options)
    result = start(strat, FakeGrid(), 6)
    assert np.allclose(arrays_as_vector(result.arrays), 4.0)
    assert strat.session.draws == 6  # the void ones too


def test_rounds_are_written_down_as_in_a_simulation(tmp_path):
    grid = FakeGrid(20, {0: BAD["nan"], 1: raises}, honest(1.0, eval_acc=0.7, eval_loss=0.5))
    start(strategy(folder=tmp_path / "run", evaluate_clients=9), grid, 12)
    found = read(tmp_path / "run")
    nobody = np.empty(0, dtype=np.int64)
    same = Round(0, 0.1, nobody, nobody, State(0, torch.zeros(1))).as_dict().keys()
    assert found.finished
    for number, line in enumerate(found.rounds):
        assert line["round"] == number
        assert same <= line.keys()
        assert len(line["sampled"]) == 7
        assert max(line["sampled"]) < 20
        assert (line["byzantine"], line["takeover"], line["kappa_seen"]) == (None, None, None)
        assert line["kappa_proved"] > 0
        assert line["available"] == 20
        assert line["score"] == {
            "loss": 0.5, "accuracy": None, "clients": pytest.approx(0.7), "worst": None,
            "backdoor": None,
        }  # fmt: skip
    reasons = {r for line in found.rounds for r in line["rejected"].items()}
    assert reasons == {("0", "holds NaN or Inf")}
    assert found.summary["missing"] == sum("1" in line["missing"] for line in found.rounds) > 0
    assert found.config["rule"] == "nnm | trimmed_mean"
    assert found.summary["final"]["clients"] == pytest.approx(0.7)


def test_evaluations_that_did_not_come_are_written_down(tmp_path):
    def only_trains(reply):
        def act(message):
            kind = message.metadata.message_type
            return reply(message) if kind == "evaluate" else honest(1.0)(message)

        return act

    grid = FakeGrid(20, {3: only_trains(raises), 4: only_trains(silent)})
    options = {"folder": tmp_path / "run", "evaluate_clients": 20, "evaluate_every": 2}
    start(strategy(**options), grid, 2)
    first, second = read(tmp_path / "run").rounds
    assert "evaluation" not in first
    told = second["evaluation"]
    assert sorted(told["sampled"]) == list(range(20))
    assert told["missing"].keys() == {"3", "4"}
    assert told["missing"]["4"] == "did not answer"
    assert (told["rejected"], second["missing"]) == ({}, {})
    entries = json.loads((tmp_path / "run" / "ledger.json").read_text())
    assert {e["number"]: e["unevaluated"] for e in entries.values() if e["unevaluated"]} == {
        3: {told["missing"]["3"]: 1},
        4: {"did not answer": 1},
    }
    assert {entry["evaluations"] for entry in entries.values()} == {1}


def test_a_run_can_go_back_to_an_earlier_checkpoint(tmp_path):
    path, grid = tmp_path / "run", FakeGrid()
    options = {"folder": path, "resume": True, "keep_checkpoints": 4}
    whole = start(strategy(**options), grid, 6)
    with pytest.raises(RunFolderError, match=r"no checkpoint after round 2; .* after 3, 4, 5, 6"):
        roll_back(path, 2)
    aside = roll_back(path, 4)
    assert [file.name for file in aside] == [
        "round-000006.safetensors.undone",
        "round-000005.safetensors.undone",
        "model.safetensors.undone",
        "summary.json.undone",
    ]
    again = FakeGrid()
    result = start(strategy(**options), again, 6)
    assert sorted(again.invitations()) == [5, 6]  # the same draws, with the same nodes online
    assert again.invitations()[5] == grid.invitations()[5]
    assert np.array_equal(arrays_as_vector(whole.arrays), arrays_as_vector(result.arrays))
    assert [line["round"] for line in read(path).rounds] == list(range(6))


def test_nobody_rolls_back_a_run_that_is_under_way_or_to_a_damaged_checkpoint(tmp_path):
    path = tmp_path / "run"
    start(strategy(folder=path), FakeGrid(), 2)
    lock = Lock(path)
    with pytest.raises(RunFolderError, match="in use by process"):
        roll_back(path, 1)
    lock.release()
    file = path / "checkpoints" / "round-000001.safetensors"
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    with pytest.raises(RunFolderError, match=r"checksum|damaged"):
        roll_back(path, 1)
    assert (path / "summary.json").exists()
    with pytest.raises(RunFolderError, match="holds no run"):
        roll_back(tmp_path, 1)
