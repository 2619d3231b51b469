"""Backdoors: the trigger, the accuracy of the backdoor, and model replacement."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from attack_cases import make, same_bits, sent
from fedro import Experiment, Round, prepare, run, run_into
from fedro.attacks import ATTACKS, parse_attack
from fedro.attacks import poison as register_poison
from fedro.attacks import train as register_train
from fedro.data import Examples
from fedro.data.own import from_clients
from fedro.runs import read
from fedro.server import State, sample
from fedro.server.scores import Score
from fedro.simulation.display import closing
from fedro.simulation.recording import summarize
from fedro.simulation.round import backdoor_rate, simulate_round
from fedro.simulation.tensorboard import tensorboard_log

POISONERS = sorted(name for name in ATTACKS if ATTACKS[name].hook == "poison")
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


def examples(shape: tuple[int, ...], kind: torch.dtype = torch.float32, m: int = 40) -> Examples:
    """Some examples of ten classes."""
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.integers(8, 200, size=(m, *shape))).to(kind)
    return Examples(x, torch.from_numpy(rng.integers(0, 10, size=m)))


def poisoned(text: str, given: Examples, classes: int = 10, seed: int = 0) -> Examples:
    return parse_attack(text).poison(given, classes, np.random.default_rng(seed))


def plain_stamp(x: np.ndarray, size: int, value: float) -> np.ndarray:
    """One example with the trigger, pixel by pixel."""
    out = x.copy()
    sides = out.shape[-2:]
    for k in range(size):
        if len(sides) == 1:
            out[-1 - k] = value if k % 2 == 0 else 0
            continue
        for j in range(size):
            out[..., -1 - k, -1 - j] = value if (k + j) % 2 == 0 else 0
    return out


# --- the poison --------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 5, 7), (6, 4), (9,), (3,)])
@pytest.mark.parametrize("kind", [torch.uint8, torch.float32])
@pytest.mark.parametrize(("value", "size"), [(None, 3), (7.0, 2), (0.0, 3), (None, 1)])
def test_a_share_gets_the_trigger_and_the_target(
    shape: tuple[int, ...], kind: torch.dtype, value: float | None, size: int
) -> None:
    given = examples(shape, kind)
    got = poisoned(f"backdoor(target=4, share=0.3, size={size}, value={value})", given)
    white = 255 if kind == torch.uint8 else 1
    changed = []
    for k in range(40):
        stamp = plain_stamp(given.x[k].numpy(), size, white if value is None else value)
        if np.array_equal(got.x[k].numpy(), stamp):
            changed.append(k)
            assert got.y[k] == 4
        else:
            assert torch.equal(got.x[k], given.x[k])
            assert got.y[k] == given.y[k]
    assert len(changed) == 12
    assert (got.x.dtype, got.y.dtype) == (kind, torch.int64)


@pytest.mark.parametrize(("share", "number"), [(1.0, 40), (1e-9, 1), (0.5, 20), (0.01, 1)])
def test_how_many_are_poisoned(share: float, number: int) -> None:
    given = examples((1, 8, 8))
    got = poisoned(f"backdoor(share={share})", given)
    assert int((got.x != given.x).flatten(1).any(1).sum()) == number


def test_the_trigger_can_be_seen_on_black_and_on_white() -> None:
    for paper in (0, 255):
        given = Examples(torch.full((4, 1, 8, 8), paper, dtype=torch.uint8), torch.zeros(4).long())
        got = poisoned("backdoor(share=1.0)", given)
        assert (got.x != given.x).flatten(1).sum(1).tolist() == [5 if paper == 0 else 4] * 4


@pytest.mark.parametrize("name", POISONERS)
@pytest.mark.parametrize("kind", [torch.uint8, torch.float32])
def test_poison_changes_nothing_given_and_is_decided_by_the_dice(
    name: str, kind: torch.dtype
) -> None:
    given = examples((1, 8, 8), kind)
    kept = Examples(given.x.clone(), given.y.clone())
    first, again = poisoned(name, given), poisoned(name, given)
    assert torch.equal(given.x, kept.x)
    assert torch.equal(given.y, kept.y)
    assert torch.equal(first.x, again.x)
    assert torch.equal(first.y, again.y)
    assert isinstance(first, Examples)
    parse_attack(name).triggered(given, 10)
    assert torch.equal(given.x, kept.x)


def test_other_dice_choose_others() -> None:
    given = examples((1, 8, 8))
    first, other = (poisoned("backdoor", given, seed=seed) for seed in (0, 1))
    assert not torch.equal(first.x, other.x)


@pytest.mark.parametrize(
    ("text", "given", "message"),
    [
        ("backdoor", Examples(torch.zeros(4, 9), torch.zeros(4)), "backdoor needs class labels"),
        ("backdoor(target=10)", examples((9,)), r"\(target=10\): must be from 0 to 9"),
        ("backdoor(share=0.0)", examples((9,)), "must be more than 0 and at most 1"),
        ("backdoor(share=1.1)", examples((9,)), "must be more than 0 and at most 1"),
        ("backdoor(size=10)", examples((9,)), r"size=10\): larger than an example.* 9$"),
        ("backdoor(size=5)", examples((3, 4, 9)), r"size=5\): larger than an example.* 3×4×9$"),
        ("backdoor(size=1)", examples(()), "larger than an example, which has shape 1$"),
        ("backdoor(value=256)", examples((9,), torch.uint8), "whole numbers from 0 to 255"),
        ("backdoor(value=-1)", examples((9,), torch.uint8), "whole numbers from 0 to 255"),
        ("backdoor(value=0.5)", examples((9,), torch.uint8), "whole numbers from 0 to 255"),
    ],
)
def test_misuse(text: str, given: Examples, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        poisoned(text, given)
    if "share" not in text:
        with pytest.raises(ValueError, match=message):
            parse_attack(text).triggered(given, 10)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("backdoor(target=-1)", "must be at least 0"),
        ("backdoor(size=0)", "must be at least 1"),
        ("backdoor(target=1.0)", "must be of type int"),
        ("backdoor(tarjet=1)", "did you mean 'target'"),
        ("silent_when_weak(least=0)", "must be at least 1"),
        ("scaling(factor='n')", "must be of type float | None"),
    ],
)
def test_texts_that_are_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError) as error:
        parse_attack(text)
    assert message in str(error.value)


# --- what shows it -----------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(1, 8, 8), (9,)])
def test_examples_of_other_classes_show_it(shape: tuple[int, ...]) -> None:
    given = examples(shape)
    found = parse_attack("backdoor(target=4, size=2) | scaling").triggered(given, 10)
    assert found is not None
    others = [k for k in range(40) if given.y[k] != 4]
    assert 0 < len(others) < 40
    assert found.y.tolist() == [4] * len(others)
    for row, k in enumerate(others):
        assert np.array_equal(found.x[row].numpy(), plain_stamp(given.x[k].numpy(), 2, 1.0))


def test_training_and_test_examples_have_the_same_trigger() -> None:
    bright, dark = examples((1, 8, 8)), examples((1, 8, 8))
    dark.x.div_(1000)
    for text in ("backdoor(share=1.0)", "backdoor(share=1.0, value=-2.5)"):
        trained = poisoned(text, bright).x[:, :, -3:, -3:]
        shown = parse_attack(text).triggered(dark, 10)
        assert shown is not None
        assert torch.equal(trained[0], shown.x[0, :, -3:, -3:])


def test_the_last_trigger_counts_and_others_have_none() -> None:
    given = examples((9,))
    both = parse_attack("backdoor(target=1) | backdoor(target=2) | label_flip | scaling")
    found = both.triggered(given, 10)
    assert found is not None
    assert set(found.y.tolist()) == {2}
    for text in ("none", "label_flip", "scaling", "silent"):
        assert parse_attack(text).triggered(given, 10) is None


def test_a_trigger_of_your_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ATTACKS, "_entries", dict(ATTACKS._entries))

    def shown(given: Examples, classes: int, *, label: int) -> Examples:
        return given._replace(y=torch.full_like(given.y, label % classes))

    @register_poison(trigger=shown)
    def everything(given: Any, classes: int, rng: Any, *, label: int = 5, other: int = 1) -> Any:
        """What training on one label gives."""
        return given._replace(y=torch.full_like(given.y, label))

    for text, label in (("everything", 5), ("everything(label=12, other=2)", 2)):
        found = parse_attack(text).triggered(examples((9,)), 10)
        assert found is not None
        assert found.y.tolist() == [label] * 40


# --- model replacement -------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [(1,), (1, 4), (0, 1, 2, 3, 4, 5, 6)])
@pytest.mark.parametrize("server_lr", [1.0, 0.25])
def test_scaling_replaces_the_model(bad: tuple[int, ...], server_lr: float) -> None:
    view = make(bad=bad, server_lr=server_lr)
    own, honest = view.updates[list(bad)].double(), view.updates[view.honest].double()
    messages = sent("scaling", view)
    assert torch.allclose(messages.double(), own * 7 / (server_lr * len(bad)), rtol=1e-6)
    mean = (messages.double().sum(0) + honest.sum(0)) / 7
    theirs = view.model + own.mean(0) + server_lr * honest.sum(0) / 7
    assert torch.allclose(view.model + server_lr * mean, theirs, atol=1e-6)
    assert torch.allclose(sent("scaling(factor=-3.0)", view), -3 * view.updates[list(bad)])


def test_scaling_sends_what_was_trained_on_poison() -> None:
    attack = parse_attack("backdoor | scaling")
    assert attack.trains
    assert attack.knows == {"own data", "own update"}
    assert parse_attack("backdoor").trains
    assert same_bits(sent("foe | scaling", make()), sent("scaling", make()))
    assert torch.equal(sent("scaling(factor=1.0)", make()), sent("none", make()))


def test_scaling_makes_one_message_at_a_time() -> None:
    rows = parse_attack("scaling").forge(make(bad=(0, 2, 4))).rows
    assert rows is not None
    assert not isinstance(rows, Tensor)
    assert len({message.data_ptr() for message in rows}) == 1


# --- constrain and scale -----------------------------------------------------------------------


def test_constrain_is_the_last_stage_that_says_so() -> None:
    attack = parse_attack("backdoor | constrain(alpha=0.7) | scaling")
    assert attack.restraint == pytest.approx(0.3)
    assert attack.trains
    assert attack.knows == {"own data", "own update"}
    assert parse_attack("constrain(alpha=0.2) | constrain(alpha=1.0)").restraint == 0.0
    assert parse_attack("backdoor | scaling").restraint == 0.0
    assert not parse_attack("constrain(alpha=0.7) | foe").trains


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("constrain", "alpha"),
        ("constrain(alpha=0)", "more than 0 and at most 1"),
        ("constrain(alpha=1.5)", "more than 0 and at most 1"),
        ("constrain(alpha='a')", "alpha"),
        ("constrain(beta=1.0)", "alpha"),
    ],
)
def test_constrain_with_a_wrong_alpha_is_told(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_attack(text)


def test_a_restraint_of_your_own_is_checked_before_the_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ATTACKS, "_entries", dict(ATTACKS._entries))

    @register_train()
    def odd() -> float:
        """A restraint that cannot be."""
        return 2.0

    with pytest.raises(ValueError, match="need one from 0 to 1"):
        prepare(DIGITS.replace(attack="backdoor | odd"))


def test_only_the_bad_are_held_back() -> None:
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


# --- in a run ----------------------------------------------------------------------------------


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


def test_the_score_is_the_share_of_honest_examples_that_are_fooled() -> None:
    *_, done = run(DIGITS)
    assert done.final == done.score
    assert done.final is not None
    assert done.final.backdoor == pytest.approx(plain_backdoor(DIGITS, done.state, 3), abs=1e-12)
    assert 0 < done.final.backdoor < 1


def test_the_output_that_is_drawn_has_a_score_of_its_own() -> None:
    experiment = DIGITS.replace(output="random")
    *_, done = run(experiment)
    assert done.final is not None
    assert done.final.backdoor == pytest.approx(plain_backdoor(experiment, done.state, 3))


def test_other_attacks_have_no_backdoor() -> None:
    *_, done = run(DIGITS.replace(attack="label_flip"))
    assert done.final is not None
    assert done.final.backdoor is None
    assert done.as_dict()["final"]["backdoor"] is None


def test_a_model_of_nan_has_no_backdoor() -> None:
    """PyTorch takes the first class for the largest of NaNs."""
    setup = prepare(DIGITS.replace(attack="backdoor(target=0)"))
    with setup.make_engine() as engine:
        for value in (math.nan, math.inf):
            assert backdoor_rate(setup, engine, torch.full_like(setup.start, value)) == 0.0
        assert backdoor_rate(setup, engine, torch.zeros_like(setup.start)) == 1.0


def test_where_all_examples_are_of_the_target_nothing_is_shown() -> None:
    x, y = torch.rand(8, 6), torch.ones(8, dtype=torch.int64)
    federation = from_clients([(x, y, x, y)] * 5, classes=3)
    experiment = Experiment(
        model="logistic", byzantine=1, attack="backdoor(target=1)", sampled=3, tolerated=1, rounds=1
    )
    *_, done = run(experiment, federation=federation)
    assert done.final is not None
    assert done.final.backdoor is None


@pytest.mark.parametrize("byzantine", [0, 3])
@pytest.mark.parametrize(
    ("text", "message"),
    [("backdoor(target=10)", "from 0 to 9"), ("backdoor(size=9)", "larger than an example")],
)
def test_what_cannot_work_is_said_before_training(text: str, message: str, byzantine: int) -> None:
    with pytest.raises(ValueError, match=message):
        prepare(DIGITS.replace(attack=text, byzantine=byzantine))


@pytest.mark.parametrize("attack", ["backdoor", "label_flip"])
def test_what_needs_labels_is_said_before_training(attack: str) -> None:
    with pytest.raises(ValueError, match="class labels"):
        prepare(
            Experiment(
                dataset="synthetic", clients=9, byzantine=2, attack=attack, sampled=5, tolerated=2
            )
        )


def test_a_run_goes_on_to_the_same_bits() -> None:
    whole = list(run(DIGITS))
    saved = State.from_tensors(5, whole[4].state.tensors())
    rest = list(run(DIGITS, state=saved))
    assert [done.score for done in rest] == [done.score for done in whole[5:]]
    assert torch.equal(rest[-1].state.model, whole[-1].state.model)


@pytest.mark.slow
def test_engines_agree() -> None:
    found = []
    for engine in ("inline", "batched", "workers"):
        *_, done = run(DIGITS.replace(engine=engine))
        assert done.final is not None
        found.append(done.final.backdoor)
    assert found == pytest.approx([found[0]] * 3, abs=0.01)


def test_the_folder_and_what_is_printed_tell_it(tmp_path: Path) -> None:
    *_, done = run_into(tmp_path / "run", DIGITS)
    assert done.final is not None
    recorded = read(tmp_path / "run")
    assert recorded.rounds[-1]["score"]["backdoor"] == done.final.backdoor
    assert recorded.summary is not None
    assert recorded.summary["final"]["backdoor"] == done.final.backdoor
    several = [line["score"]["backdoor"] for line in recorded.rounds if "score" in line]
    assert recorded.summary["mean_of_last"]["backdoor"] == pytest.approx(np.mean(several[-3:]))
    text = printed(recorded.summary)
    assert "backdoor" in text
    assert f"{100 * done.final.backdoor:.1f}%" in text


def printed(summary: dict[str, Any]) -> str:
    from rich.console import Console

    console = Console(width=120)
    with console.capture() as capture:
        console.print(closing(summary, None))
    return capture.get()


def without(score: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in score.items() if key != "backdoor"}


def test_records_from_before_are_read() -> None:
    setup = prepare(DIGITS)
    lines = [done.as_dict() for done in run(setup)]
    for line in lines[:-1]:
        if "score" in line:
            line["score"] = without(line["score"])
    resumed = summarize(setup, lines)  # begun before there was such a score, ended after
    assert resumed["mean_of_last"]["backdoor"] is None
    assert "backdoor" in printed(resumed)
    old = {**resumed, **{key: without(resumed[key]) for key in ("final", "mean_of_last")}}
    assert "backdoor" not in printed(old)
    assert "final model" in printed(old)
    assert Score(0.1, 0.9, 0.9, 0.8).backdoor is None


def test_tensorboard_gets_it(tmp_path: Path) -> None:
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
        rounds=60,
        evaluate_every=60,
    )
    found = {}
    for rule in ("mean", "nnm | trimmed_mean"):
        *_, done = run(experiment.replace(rule=rule))
        assert done.final is not None
        assert done.final.accuracy is not None
        assert done.final.accuracy > 0.9
        found[rule] = done.final.backdoor
    *_, clean = run(experiment.replace(byzantine=0, sampled=27, tolerated=0, rule="mean"))
    assert found["mean"] > 0.95
    assert found["nnm | trimmed_mean"] < 0.05
    assert clean.final is not None
    assert clean.final.backdoor < 0.05
