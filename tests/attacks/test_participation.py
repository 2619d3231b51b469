"""Silence, takeover, and clients who wait for a draw in which they are many."""

import math

import numpy as np
import pytest
import torch

from attack_cases import (
    make,
    sent,
)
from fedro import Experiment, Round, prepare, run
from fedro.attacks import (
    Forged,
    parse_attack,
)
from fedro.common.streams import stream
from fedro.planning.feasibility import PlanningProblem
from fedro.planning.tails import hypergeometric_log_cdf
from fedro.server import sample


def test_silent() -> None:
    view = make()
    assert parse_attack("silent").silent(view).tolist() == [True, True]
    assert parse_attack("sign_flip | silent").silent(view).tolist() == [True, True]
    assert parse_attack("sign_flip").silent(view).tolist() == [False, False]


@pytest.mark.parametrize(
    ("at", "bad", "seized"),
    [
        ("more", 1, False),
        ("more", 2, False),
        ("more", 3, True),
        ("reach", 1, False),
        ("reach", 2, True),
        ("reach", 3, True),
    ],
)
def test_takeover(at: str, bad: int, seized: bool) -> None:
    view = make(bad=tuple(range(bad)), tolerated=2)
    found = parse_attack(f"sign_flip | takeover(at={at!r})").forge(view)
    assert (found.model is not None) == seized
    if found.model is not None:
        assert torch.equal(found.model, torch.zeros(12))
    assert torch.equal(sent(f"sign_flip | takeover(at={at!r})", view), sent("sign_flip", view))
    assert parse_attack("takeover").forge(view).rows is None
    after = parse_attack(f"takeover(at={at!r}) | foe").forge(view)
    assert (after.model is not None) == seized


def test_nobody_bad_seizes_nothing() -> None:
    view = make(bad=(), tolerated=0)
    assert parse_attack("takeover(at='reach')").forge(view) == Forged(None, None)
    assert parse_attack("silent").silent(view).shape == (0,)


WAITING = "silent_when_weak | foe(tau=100.0)"


EXPERIMENT = Experiment(
    dataset="digits",
    clients=12,
    model="mlp(hidden=16)",
    byzantine=4,
    attack=WAITING,
    sampled=5,
    tolerated=2,
    rule="trimmed_mean",
    rounds=30,
    local_steps=1,
    batch_size=8,
    evaluate_every=100,
)


@pytest.mark.parametrize("tolerated", [0, 1, 2, 3])
@pytest.mark.parametrize("least", [None, 1, 2, 3, 7])
@pytest.mark.parametrize("bad", [(), (1,), (1, 4), (0, 1, 2, 3, 4, 5, 6)])
def test_they_reply_if_they_are_enough(
    bad: tuple[int, ...], least: int | None, tolerated: int
) -> None:
    view = make(bad=bad, tolerated=tolerated)
    enough = len(bad) >= (tolerated + 1 if least is None else least)
    attack = parse_attack(f"silent_when_weak(least={least}) | foe(tau=100.0)")
    assert attack.silent(view).tolist() == [not enough] * len(bad)
    assert not attack.trains
    assert parse_attack("silent_when_weak").trains


@pytest.fixture(scope="module")
def rounds() -> dict[str, list[Round]]:
    """The same run without an attack, and with clients who wait."""
    return {attack: list(run(EXPERIMENT.replace(attack=attack))) for attack in ("none", WAITING)}


def test_waiting_changes_neither_the_draws_nor_the_overruns(
    rounds: dict[str, list[Round]],
) -> None:
    plain, waiting = rounds["none"], rounds[WAITING]
    assert len(plain) == len(waiting) == EXPERIMENT.rounds  # T counts draws, also void ones
    for a, b in zip(plain, waiting, strict=True):
        assert np.array_equal(a.sampled, b.sampled)
        assert np.array_equal(a.byzantine, b.byzantine)
    lost = [[len(round_.byzantine) > 2 for round_ in found] for found in (plain, waiting)]
    assert lost[0] == lost[1]
    assert 0 < sum(lost[1]) < EXPERIMENT.rounds


def test_void_rounds_count_and_leave_the_model_as_it_is(rounds: dict[str, list[Round]]) -> None:
    before, seen = prepare(EXPERIMENT).start, set()
    for number, round_ in enumerate(rounds[WAITING]):
        bad = len(round_.byzantine)
        assert round_.round == number
        assert round_.state.round == number + 1
        assert len(round_.missing) == (bad if bad <= 2 else 0)
        assert (round_.void is not None) == (1 <= bad <= 2)  # 5 − |B_t| answer, and 2·2 may be bad
        unchanged = round_.state.model.numpy().tobytes() == before.numpy().tobytes()
        assert unchanged == (round_.void is not None)
        before = round_.state.model
        seen.add(min(bad, 3))
    assert seen == {0, 1, 2, 3}
    assert torch.isfinite(before).all()


def lost_rounds(seed: int, draws: int) -> int:
    """In how many rounds of a run more bad clients are sampled than tolerated."""
    bad = np.zeros(12, dtype=bool)
    bad[stream(seed, "byzantine").choice(12, size=4, replace=False)] = True
    return sum(int(bad[sample(seed, t, 12, 5)].sum()) > 2 for t in range(draws))


def test_overruns_are_as_many_as_planned(rounds: dict[str, list[Round]]) -> None:
    assert lost_rounds(0, 30) == sum(len(round_.byzantine) > 2 for round_ in rounds[WAITING])
    seeds, draws = 300, 10
    found = np.array([lost_rounds(seed, draws) for seed in range(seeds)])
    lost = -math.expm1(hypergeometric_log_cdf(2, 12, 4, 5))
    assert lost == pytest.approx(120 / 792)  # C(4,3)·C(8,2) + C(4,4)·C(8,1), of C(12,5)
    total = seeds * draws
    assert abs(found.sum() - total * lost) < 3 * math.sqrt(total * lost * (1 - lost))
    plan = PlanningProblem(12, 4, draws, retries=0, dropout=0.0, confidence=0.5, bound="exact")
    safe = plan.achieved(5, 2)
    assert abs((found == 0).sum() - seeds * safe) < 3 * math.sqrt(seeds * safe * (1 - safe))
