"""Backdoors in runs: the score of the backdoor, how it is recorded, and what rules let through."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from attack_cases import (
    plain_stamp,
)
from fedro import Experiment, Round, prepare, run, run_into
from fedro.attacks import (
    ATTACKS,
    train,
)
from fedro.data import from_clients
from fedro.rules import parse_rule
from fedro.runs import read
from fedro.server import State, sample, summarize
from fedro.server.scores import Score
from fedro.simulation.round import backdoor_rate, simulate_round
from fedro.simulation.tensorboard import tensorboard_log
from fedro.simulation.terminal import results

pytestmark = pytest.mark.slow  # its tests train models or start processes

DIGITS = Experiment(
    dataset="digits",
    clients=12,
    model="mlp(hidden=16)",
    byzantine=3,
    attack="backdoor(target=3, share=0.2) | scaling",
    sampled=7,
    tolerated=2,
    rule="mean",
    rounds=8,
    client_lr=0.5,
    local_steps=3,
    batch_size=8,
    evaluate_every=2,
)


def test_a_restraint_of_your_own_is_checked_before_the_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ATTACKS, "_entries", dict(ATTACKS._entries))

    @train()
    def odd() -> float:
        """A restraint that cannot be."""
        return 2.0

    with pytest.raises(ValueError, match="need one from 0 to 1"):
        prepare(DIGITS.replace(attack="backdoor | odd"))


def test_constrain_shortens_only_byzantine_updates() -> None:
    free, held = (DIGITS.replace(attack=a) for a in ("backdoor", "backdoor | constrain(alpha=0.1)"))
    updates = []
    for experiment in (free, held):
        setup = prepare(experiment)
        with setup.make_engine() as engine:
            simulate_round(setup, engine, State(0, setup.start))
            updates.append(engine.updates.clone())
    bad = setup.byzantine[sample(0, 0, 12, 7)]
    assert 0 < bad.sum() < 7
    assert torch.equal(updates[0][~bad], updates[1][~bad])
    assert (updates[1][bad].norm(dim=1) < 0.5 * updates[0][bad].norm(dim=1)).all()


def plain_backdoor(experiment: Experiment, state: State, target: int) -> float:
    """The accuracy of the backdoor, one honest client's example after the other."""
    setup = prepare(experiment)
    module = setup.module(state).eval()
    fooled = []
    for client in np.flatnonzero(~setup.byzantine):
        x, y = setup.federation.test(int(client))
        for image, label in zip(x.numpy(), y.tolist(), strict=True):
            if label != target:
                scores = module(torch.from_numpy(plain_stamp(image, 3, 1.0))[None])
                fooled.append(int(scores.argmax()) == target)
    return float(np.mean(fooled))


@pytest.fixture(scope="module")
def rounds() -> list[Round]:
    """A run with a backdoor."""
    return list(run(DIGITS))


def test_the_score_is_the_share_of_honest_examples_that_are_fooled(rounds: list[Round]) -> None:
    last = rounds[-1]
    assert last.final == last.score
    assert last.final is not None
    assert last.final.backdoor == pytest.approx(plain_backdoor(DIGITS, last.state, 3), abs=1e-12)
    assert 0 < last.final.backdoor < 1


def test_the_random_iterate_has_a_score_of_its_own() -> None:
    experiment = DIGITS.replace(output="random")
    *_, last = run(experiment)
    assert last.final is not None
    assert last.final.backdoor == pytest.approx(plain_backdoor(experiment, last.state, 3))


def test_other_attacks_have_no_backdoor() -> None:
    *_, last = run(DIGITS.replace(attack="label_flip"))
    assert last.final is not None
    assert last.final.backdoor is None
    assert last.as_dict()["final"]["backdoor"] is None


def test_a_model_of_nan_has_no_backdoor() -> None:
    """PyTorch takes the first class for the largest of NaNs."""
    setup = prepare(DIGITS.replace(attack="backdoor(target=0)"))
    with setup.make_engine() as engine:
        for value in (math.nan, math.inf):
            assert backdoor_rate(setup, engine, torch.full_like(setup.start, value)) == 0.0
        assert backdoor_rate(setup, engine, torch.zeros_like(setup.start)) == 1.0


def test_there_is_no_score_if_all_examples_are_of_the_target() -> None:
    x, y = torch.rand(8, 6), torch.ones(8, dtype=torch.int64)
    federation = from_clients([(x, y, x, y)] * 5, classes=3)
    experiment = Experiment(
        model="logistic", byzantine=1, attack="backdoor(target=1)", sampled=3, tolerated=1, rounds=1
    )
    *_, last = run(experiment, federation=federation)
    assert last.final is not None
    assert last.final.backdoor is None


@pytest.mark.parametrize("byzantine", [0, 3])
@pytest.mark.parametrize(
    ("text", "message"),
    [("backdoor(target=10)", "from 0 to 9"), ("backdoor(size=9)", "larger than an example")],
)
def test_options_that_do_not_fit_the_data_fail_before_training(
    text: str, message: str, byzantine: int
) -> None:
    with pytest.raises(ValueError, match=message):
        prepare(DIGITS.replace(attack=text, byzantine=byzantine))


@pytest.mark.parametrize("attack", ["backdoor", "label_flip"])
def test_regression_data_are_refused_before_training(attack: str) -> None:
    with pytest.raises(ValueError, match="class labels"):
        prepare(
            Experiment(
                dataset="synthetic", clients=9, byzantine=2, attack=attack, sampled=5, tolerated=2
            )
        )


def test_a_resumed_run_has_the_same_bits(rounds: list[Round]) -> None:
    saved = State.from_tensors(5, rounds[4].state.tensors())
    rest = list(run(DIGITS, state=saved))
    assert [r.score for r in rest] == [r.score for r in rounds[5:]]
    assert torch.equal(rest[-1].state.model, rounds[-1].state.model)


@pytest.mark.slow
def test_engines_agree() -> None:
    rates = []
    for engine in ("inline", "batched", "workers"):
        *_, last = run(DIGITS.replace(engine=engine, rounds=3))
        assert last.final is not None
        rates.append(last.final.backdoor)
    assert rates == pytest.approx([rates[0]] * 3, abs=0.01)


def test_the_run_folder_and_the_terminal_show_the_score(tmp_path: Path) -> None:
    *_, last = run_into(tmp_path / "run", DIGITS)
    assert last.final is not None
    recorded = read(tmp_path / "run")
    assert recorded.rounds[-1]["score"]["backdoor"] == last.final.backdoor
    assert recorded.summary is not None
    assert recorded.summary["final"]["backdoor"] == last.final.backdoor
    several = [line["score"]["backdoor"] for line in recorded.rounds if "score" in line]
    assert recorded.summary["mean_of_last"]["backdoor"] == pytest.approx(np.mean(several[-3:]))
    text = printed(recorded.summary)
    assert "backdoor" in text
    assert f"{100 * last.final.backdoor:.1f}%" in text


def printed(summary: dict[str, Any]) -> str:
    from rich.console import Console

    console = Console(width=120)
    with console.capture() as capture:
        console.print(results(summary, None))
    return capture.get()


def without(score: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in score.items() if key != "backdoor"}


def test_records_without_a_backdoor_score_are_read(rounds: list[Round]) -> None:
    lines = [round_.as_dict() for round_ in rounds]
    for line in lines[:-1]:
        if "score" in line:
            line["score"] = without(line["score"])
    # The run began before there was such a score, and ended after.
    resumed = summarize(lines, sampled=7, tolerated=2, rule=parse_rule("mean"))
    assert resumed["mean_of_last"]["backdoor"] is None
    assert "backdoor" in printed(resumed)
    old = {**resumed, **{key: without(resumed[key]) for key in ("final", "mean_of_last")}}
    assert "backdoor" not in printed(old)
    assert "final model" in printed(old)
    assert Score(0.1, 0.9, 0.9, 0.8).backdoor is None


def test_tensorboard_shows_the_score(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    ids = np.arange(3)
    state = State(1, torch.zeros(2))
    log = tensorboard_log(tmp_path)
    log(Round(0, 0.1, ids, ids[:1], state, score=Score(0.1, 0.9, 0.8, 0.7, 0.25)))
    log(Round(1, 0.1, ids, ids[:1], state, score=Score(0.1, 0.9, 0.8, 0.7)))
    events = EventAccumulator(str(tmp_path)).Reload()
    assert [event.value for event in events.Scalars("test/backdoor")] == [0.25]
    assert len(events.Scalars("test/accuracy")) == 2


@pytest.mark.slow
@pytest.mark.parametrize("partition", ["iid", "dirichlet(alpha=1.0)"])
def test_replacement_fools_the_mean_and_not_fedro(partition: str) -> None:
    """A backdoor does no harm to the accuracy, so that alone would not tell."""
    experiment = Experiment(
        dataset="digits",
        clients=50,
        partition=partition,
        model="mlp(hidden=32)",
        byzantine=10,
        attack="backdoor | scaling",
        client_lr=0.5,
        rounds=30,
        evaluate_every=60,
    )
    rates = {}
    for rule in ("mean", "nnm | trimmed_mean"):
        *_, last = run(experiment.replace(rule=rule))
        assert last.final is not None
        assert last.final.accuracy is not None
        assert last.final.accuracy > 0.9
        rates[rule] = last.final.backdoor
    *_, clean = run(experiment.replace(byzantine=0, sampled=27, tolerated=0, rule="mean"))
    assert rates["mean"] > 0.95
    assert rates["nnm | trimmed_mean"] < 0.05
    assert clean.final is not None
    assert clean.final.backdoor < 0.05
