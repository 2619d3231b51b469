"""Attacks on local training: flipped labels, the backdoor's trigger, and restrained training."""

from typing import Any

import numpy as np
import pytest
import torch

from attack_cases import (
    Examples,
    examples,
    plain_stamp,
)
from fedro.attacks import (
    ATTACKS,
    parse_attack,
    poison,
)


def test_label_flip() -> None:
    examples = Examples(torch.zeros(4, 1, 2, 2, dtype=torch.uint8), torch.tensor([0, 1, 9, 4]))
    got = parse_attack("label_flip").poison(examples, 10, np.random.default_rng(0))
    assert got.y.tolist() == [9, 8, 0, 5]
    assert got.y.dtype == torch.int64
    assert got.x is examples.x
    assert examples.y.tolist() == [0, 1, 9, 4]
    twice = parse_attack("label_flip | label_flip").poison(examples, 10, np.random.default_rng(0))
    assert torch.equal(twice.y, examples.y)
    numbers = examples._replace(y=torch.ones(4))
    with pytest.raises(ValueError, match="class labels"):
        parse_attack("label_flip").poison(numbers, 10, np.random.default_rng(0))


POISONERS = sorted(name for name in ATTACKS if ATTACKS[name].hook == "poison")


def poisoned(text: str, given: Examples, classes: int = 10, seed: int = 0) -> Examples:
    return parse_attack(text).poison(given, classes, np.random.default_rng(seed))


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
def test_poison_modifies_nothing_and_is_decided_by_the_generator(
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


def test_another_seed_chooses_other_examples() -> None:
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
        ("backdoor(value=256)", examples((9,), torch.uint8), "whole number from 0 to 255"),
        ("backdoor(value=-1)", examples((9,), torch.uint8), "whole number from 0 to 255"),
        ("backdoor(value=0.5)", examples((9,), torch.uint8), "whole number from 0 to 255"),
    ],
)
def test_examples_that_do_not_fit_are_refused(text: str, given: Examples, message: str) -> None:
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

    @poison(trigger=shown)
    def everything(given: Any, classes: int, rng: Any, *, label: int = 5, other: int = 1) -> Any:
        """What training on one label gives."""
        return given._replace(y=torch.full_like(given.y, label))

    for text, label in (("everything", 5), ("everything(label=12, other=2)", 2)):
        found = parse_attack(text).triggered(examples((9,)), 10)
        assert found is not None
        assert found.y.tolist() == [label] * 40


def test_the_last_train_stage_decides_the_restraint() -> None:
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
def test_constrain_refuses_a_wrong_alpha(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_attack(text)
