"""Attacks on a server that keeps evidence: each is what its definition says."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from attack_cases import (
    honest_rows,
    make,
    make_against,
    same_bits,
    sent,
)
from fedro import Experiment, Round, kernels, prepare, run
from fedro.attacks import (
    View,
    parse_attack,
    sign_flip,
    wait,
    worst,
)
from fedro.server import State, sample
from fedro.simulation.round import jobs

EXPERIMENT = Experiment(
    dataset="digits",
    clients=12,
    model="mlp(hidden=16)",
    byzantine=4,
    sampled=8,
    tolerated=3,
    rule="trimmed_mean",
    rounds=6,
    local_steps=2,
    batch_size=8,
    evaluate_every=100,
    engine="inline",
)


def models(attack: str, **changes: Any) -> list[bytes]:
    """The server's model after each round."""
    rounds = run(EXPERIMENT.replace(attack=attack, **changes))
    return [round_.state.model.numpy().tobytes() for round_ in rounds]


@pytest.fixture(scope="module")
def honest() -> list[bytes]:
    """The models of a run without an attack."""
    return models("none")


STRIKES = [
    *("sign_flip", "sign_flip(own=True)", "label_flip", "backdoor | scaling", "silent"),
    *("constrain(alpha=0.1)", "gauss(std=1.0)"),
]


@pytest.mark.slow
@pytest.mark.parametrize("strike", STRIKES)
def test_patient_is_honest_bit_for_bit_and_then_strikes(strike: str, honest: list[bytes]) -> None:
    waiting = models(f"patient(until=3) | {strike}")
    assert waiting[:3] == honest[:3]
    assert all(a != b for a, b in zip(waiting[3:], honest[3:], strict=True))


def test_patient_without_a_wait_is_the_attack_itself() -> None:
    assert models("patient(until=0) | sign_flip") == models("sign_flip")


def test_patient_beyond_the_last_round_is_no_attack(honest: list[bytes]) -> None:
    assert models("patient(until=6) | label_flip | sign_flip") == honest


def examples_of(attack: str, round: int) -> dict[int, Tensor]:
    """The labels of the batches that each Byzantine client trains on."""
    setup = prepare(EXPERIMENT.replace(attack=attack))
    ids = sample(0, round, 12, 8)
    bad = setup.byzantine[ids]
    assert bad.any()
    made = {job.row: job for job in jobs(setup, round, ids, bad)}
    return {row: made[row].batches()[1] for row in np.flatnonzero(bad).tolist() if row in made}


@pytest.mark.parametrize("round", [0, 1, 2, 3])
def test_patient_poisons_only_after_the_wait(round: int) -> None:
    clean, found = (examples_of(a, round) for a in ("none", "patient(until=2) | label_flip"))
    assert clean.keys() == found.keys()
    for row, labels in clean.items():
        assert torch.equal(found[row], labels if round < 2 else 9 - labels)


def test_patient_trains_only_while_it_waits() -> None:
    assert len(examples_of("patient(until=2) | sign_flip", 1)) > 0
    assert examples_of("patient(until=2) | sign_flip", 2) == {}


def test_patient_does_not_restrain_training_while_it_waits() -> None:
    attack = parse_attack("patient(until=2) | constrain(alpha=0.25)")
    assert [attack.at(round).restraint for round in range(4)] == [0.0, 0.0, 0.75, 0.75]


@pytest.mark.slow
def test_a_resumed_run_waits_as_long() -> None:
    experiment = EXPERIMENT.replace(attack="patient(until=4) | framing | noisy")
    rounds: list[Round] = list(run(experiment))
    saved = State.from_tensors(3, rounds[2].state.tensors())
    *_, last = run(experiment, state=saved)
    assert same_bits(last.state.model, rounds[-1].state.model)


def test_stages_in_front_do_not_wait_and_waits_add_up() -> None:
    text = "label_flip | patient(until=3) | foe | patient(until=5) | zero"
    found = [str(parse_attack(text).at(round)) for round in (0, 2, 3, 4, 5, 9)]
    flip = "label_flip"
    assert found == [flip, flip, *[f"{flip} | foe"] * 2, *[f"{flip} | foe | zero"] * 2]
    early = parse_attack("patient(until=5) | foe | patient(until=3) | zero")
    assert [str(early.at(round)) for round in (0, 4, 5)] == ["none", "none", "foe | zero"]


@pytest.mark.parametrize("until", [0, 4, 5])
def test_messages_and_silence_wait(until: int) -> None:
    view, acts = make(round=4), until <= 4
    attack = parse_attack(f"patient(until={until}) | sign_flip | silent | takeover(at='reach')")
    own = view.updates[[1, 4]]
    assert same_bits(sent(attack, view), sent("sign_flip", view) if acts else own)
    assert attack.silent(view).tolist() == [acts, acts]
    assert (attack.forge(view).model is not None) == acts
    assert attack.knows == {"honest updates"}


@pytest.mark.usefixtures("table")
def test_a_wait_of_the_users_own() -> None:
    @wait()
    def every(round: int, *, period: int = 2) -> bool:
        """Strike in every round of a period."""
        return round % period != 0

    attack = every(period=3) | sign_flip()
    assert [str(attack.at(round)) for round in range(4)] == [
        *("sign_flip", "none", "none", "sign_flip"),
    ]
    assert attack.trains
    assert not attack.at(0).trains
    with pytest.raises(TypeError, match=r"define clumsy\(round, \*, …\)"):
        wait()(_clumsy)


def clumsy(view: View, other: int) -> bool:
    """Two parameters."""
    return bool(view) and bool(other)


_clumsy: Any = clumsy


@pytest.mark.parametrize("before", ["sign_flip", "sign_flip(own=True)", "gauss(std=1.0)", "none"])
@pytest.mark.parametrize("std", [0.1, 3.0])
def test_noise_has_the_deviation_of_the_honest_updates(before: str, std: float) -> None:
    view = make(12, (0, 3, 7), 20_000)
    view.updates *= torch.linspace(0.1, 5.0, 20_000)  # each coordinate has a scale of its own
    plain = sent(before, replace(view, rng=np.random.default_rng(5)))
    text = f"{before} | noisy(std={std})"
    noise = (sent(text, replace(view, rng=np.random.default_rng(5))) - plain).double().numpy()
    units = noise / (std * honest_rows(view).std(axis=0))
    assert units.mean(axis=1) == pytest.approx([0.0] * 3, abs=0.03)  # 4 standard errors
    assert units.std(axis=1) == pytest.approx([1.0] * 3, rel=0.02)
    assert np.abs(np.corrcoef(units) - np.eye(3)).max() < 0.03  # each has its own
    assert (np.abs(units) > 2).mean() == pytest.approx(math.erfc(math.sqrt(2)), rel=0.05)


@pytest.mark.parametrize("std", [0.01, 0.1, 1.0])
def test_noisy_colluders_are_apart_like_honest_clients_times_std(std: float) -> None:
    view = make(26, tuple(range(11)), 5_000)
    sq = kernels.distances(sent(f"sign_flip | noisy(std={std})", view)).value
    honest = kernels.distances(view.updates, rows=view.honest).value
    ratio = np.median(sq[np.triu_indices(11, 1)]) / np.median(honest[np.triu_indices(15, 1)])
    assert ratio == pytest.approx(std**2, rel=0.15)


def test_noise_of_the_same_round_is_the_same() -> None:
    assert same_bits(sent("foe | noisy", make()), sent("foe | noisy", make()))
    assert same_bits(sent("foe | noisy(std=0.0)", make()), sent("foe", make()))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_noise_is_written_into_rows_of_any_type(dtype: torch.dtype) -> None:
    view = make()
    view.updates = view.updates.to(dtype)
    assert sent("sign_flip(own=True) | noisy", view).dtype == dtype


def test_noisy_keeps_what_else_the_stages_before_decided() -> None:
    view = make_against("krum")
    forged = (worst(among="foe; alie") | parse_attack("takeover(at='reach') | noisy")).forge(view)
    assert forged.name in ("foe", "alie")
    assert forged.model is not None


@pytest.mark.parametrize("victim", [3, 23, 63])  # clients of the rows 0, 2 and 6
def test_framing_copies_its_victim(victim: int) -> None:
    view = make()
    found = sent(f"framing(victim={victim})", view)
    assert all(same_bits(message, view.updates[victim // 10]) for message in found)
    assert not view.memory


def test_framing_is_honest_while_the_victim_is_away() -> None:
    view = make()
    assert same_bits(sent("framing(victim=8)", view), view.updates[[1, 4]])
    assert same_bits(sent("sign_flip | framing(victim=8)", view), sent("sign_flip", view))
    view.updates[0, 3] = math.nan  # the server would reject the copies
    assert same_bits(sent("framing(victim=3)", view), view.updates[[1, 4]])


def test_framing_refuses_a_victim_that_is_byzantine() -> None:
    with pytest.raises(ValueError, match=r"framing\(victim=13\): client 13 is Byzantine itself"):
        sent("framing(victim=13)", make())


def test_the_drawn_victim_is_honest_and_stays() -> None:
    seen = set()
    for seed in range(60):
        memory: dict[str, Tensor] = {}
        view = make(memory=memory, rng=np.random.default_rng(seed))
        copies = sent("framing", view)
        victim = int(memory["framing.victim"])
        assert victim in view.ids[view.honest]
        assert same_bits(copies[0], view.updates[victim // 10])
        without = make(memory=memory, ids=np.arange(100, 107))
        assert same_bits(sent("framing", without), without.updates[[1, 4]])
        assert int(memory["framing.victim"]) == victim
        seen.add(victim)
    assert seen == set(view.ids[view.honest].tolist())


@pytest.mark.slow
def test_framing_in_a_run_copies_and_otherwise_trains(honest: list[bytes]) -> None:
    setup = prepare(EXPERIMENT)
    victim = int(np.flatnonzero(~setup.byzantine)[0])
    found = models(f"framing(victim={victim})")
    there = [victim in sample(0, round, 12, 8) for round in range(6)]
    first = there.index(True)
    assert found[:first] == honest[:first]
    assert found[first] != honest[first]
    away = EXPERIMENT.replace(attack="framing(victim=99)")  # a client that is never sampled
    assert [r.state.model.numpy().tobytes() for r in run(away)] == honest


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))


def line(view: View, keep: float) -> tuple[np.ndarray, float]:
    """The honest mean and the cosine to reach, from the definition."""
    g = honest_rows(view)
    mean = g.mean(axis=0)
    return mean, keep * float(np.median([cosine(row, mean) for row in g]))


@pytest.mark.parametrize("keep", [0.05, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("shift", [0.0, 0.5])
@pytest.mark.parametrize("shape", [(9, (1, 4, 5), 40), (26, tuple(range(11)), 9001)])
def test_below_the_line_is_on_the_line(
    keep: float, shift: float, shape: tuple[int, tuple[int, ...], int], backend: str
) -> None:
    view = make(*shape)
    view.updates += shift
    mean, wanted = line(view, keep)
    own = view.updates.double().numpy()[view.byzantine]
    moved = 0
    for message, before in zip(sent(f"below_the_line(keep={keep})", view), own, strict=True):
        after = message.double().numpy()
        if cosine(before, mean) <= wanted:
            assert np.array_equal(after, before)
            continue
        moved += 1
        assert cosine(after, mean) == pytest.approx(wanted, abs=2e-6)
        assert cosine(after - 0.01 * mean, mean) < wanted - 1e-6  # a larger share falls below
        rest = before - after  # only the honest mean was taken away, and not added
        assert np.allclose(rest, rest @ mean / (mean @ mean) * mean, atol=1e-5)
        assert rest @ mean > 0
    assert moved or keep > 0.5  # honest updates are part of ḡ: theirs are larger


def test_below_the_line_sends_no_copies() -> None:
    view = make(26, tuple(range(11)), 5_000)
    sq = kernels.distances(sent("below_the_line", view)).value[np.triu_indices(11, 1)]
    honest = kernels.distances(view.updates, rows=view.honest).value[np.triu_indices(15, 1)]
    assert sq.min() > 0.9 * np.median(honest)


def test_a_lower_line_does_more_harm() -> None:
    view = make(26, tuple(range(11)), 5_000)
    mean = honest_rows(view).mean(axis=0)
    along = [
        float((sent(f"below_the_line(keep={keep})", view).double().numpy() @ mean).mean())
        for keep in (0.9, 0.6, 0.3, 0.1)
    ]
    assert sorted(along, reverse=True) == along


def test_below_the_line_counts_only_what_the_rule_sees() -> None:
    view = make(9, (1, 4, 5), 40, trained=30)
    narrow = replace(make(9, (1, 4, 5), 40), updates=view.updates[:, :30].clone())
    found = sent("below_the_line", view)
    assert torch.allclose(found[:, :30], sent("below_the_line", narrow), atol=1e-6)


def test_below_the_line_without_a_direction() -> None:
    view = make(4, (0,), 12)
    view.updates[3] = -view.updates[1] - view.updates[2]  # the mean is rounding
    view.updates[1:] = view.updates[1:].round()
    view.updates[3] = -view.updates[1] - view.updates[2]
    assert same_bits(sent("below_the_line", view), view.updates[:1])
    equal = make(4, (0,), 12)
    equal.updates[:] = equal.updates[1].clone()  # cosines of 1: all is along the mean
    found = sent("below_the_line", equal)
    assert found.isfinite().all()
    own_is_nan = make()
    own_is_nan.updates[1] = math.nan
    found = sent("below_the_line", own_is_nan)
    assert found[0].isnan().all()
    assert same_bits(found[1], sent("below_the_line", make())[1])


def test_below_the_line_reads_the_matrix_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    for name in ("combine", "facts", "distances", "moments", "geometry", "blend"):
        monkeypatch.setattr(kernels, name, _counted(calls, name, getattr(kernels, name)))
    sent("below_the_line", make())
    assert calls == ["combine", "facts"]


def _counted(calls: list[str], name: str, function: Any) -> Any:
    def call(*args: Any, **options: Any) -> Any:
        calls.append(name)
        return function(*args, **options)

    return call


@pytest.mark.parametrize("candidate", ["patient", "noisy", "framing", "below_the_line"])
def test_worst_does_not_try_them(candidate: str) -> None:
    with pytest.raises(ValueError, match=f"{candidate} cannot be tried"):
        worst(among=candidate)
