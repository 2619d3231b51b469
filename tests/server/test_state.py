"""The state of a run, and the report on a round."""

import json

import numpy as np
import pytest
import torch

from fedro.server import Round, Score, State, timed


def test_state_goes_into_tensors_and_back():
    full = State(3, torch.rand(4), torch.rand(4), {"z": torch.rand(2)}, torch.rand(4))
    for state in (full, State(0, torch.rand(2))):
        again = State.from_tensors(state.round, state.tensors())
        assert again.tensors().keys() == state.tensors().keys()
        assert all(torch.equal(v, again.tensors()[k]) for k, v in state.tensors().items())


def test_a_checkpoint_without_a_model_is_refused():
    with pytest.raises(ValueError, match="a checkpoint without a model: it has chosen"):
        State.from_tensors(3, {"chosen": torch.rand(2)})


def test_the_output_is_the_random_iterate_if_one_was_drawn():
    model, chosen = torch.zeros(2), torch.ones(2)
    assert State(3, model).output is model
    assert State(3, model, chosen=chosen).output is chosen


def test_a_round_is_one_line_of_json():
    round_ = Round(2, 0.1, np.array([4, 1]), None, State(3, torch.zeros(2)))
    round_.missing, round_.score = {4: "did not answer"}, Score(0.5, 0.9, None, None)
    line = json.loads(json.dumps(round_.as_dict()))
    assert (line["sampled"], line["byzantine"]) == ([4, 1], None)
    assert line["missing"] == {"4": "did not answer"}
    assert line["score"]["accuracy"] == 0.9
    assert "final" not in line
    assert "state" not in line
    round_.byzantine = np.array([1])
    assert round_.as_dict()["byzantine"] == [1]


def test_parts_of_a_round_are_timed():
    round_ = Round(0, 0.1, np.array([0]), None, State(0, torch.zeros(1)))
    with timed(round_, "train"):
        pass
    assert 0 <= round_.seconds["train"] < 10
