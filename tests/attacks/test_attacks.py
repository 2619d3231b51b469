"""Every attack in the table: its definition, what it knows, and what must never happen."""

import copy
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args, get_origin

import numpy as np
import pytest
import safetensors.torch
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from attack_cases import honest_rows, make, same_bits, sent
from fedro import attacks, kernels
from fedro.attacks import ATTACKS, Attack, Entry, Forged, HiddenError, View, parse_attack
from fedro.attacks import forge as register_forge
from fedro.attacks import poison as register_poison
from fedro.attacks import silence as register_silence
from fedro.attacks.listing import as_markdown, as_text
from fedro.attacks.moments import moments
from fedro.attacks.omniscient import hiding_z
from fedro.attacks.view import NEEDS
from fedro.common.registry import Stage
from fedro.rules import parse_rule

EVERY = sorted(ATTACKS)
FORGERS = [name for name in EVERY if ATTACKS[name].hook == "forge"]
OMNISCIENT = [name for name in FORGERS if "honest updates" in ATTACKS[name].knows]


class Examples(NamedTuple):
    x: Tensor
    y: Tensor


def default(name: str) -> Attack:
    """An attack of one stage, with what it needs."""
    options = ATTACKS[name].options
    needed = {key: 0.5 for key, option in options.items() if option.default is option.empty}
    return Attack((Stage(name, needed),))


def variants(name: str) -> Iterator[Attack]:
    """An attack with its defaults, and with each option that changes what it knows."""
    yield default(name)
    for key in ATTACKS[name].unless:
        stage = default(name).stages[0]
        yield Attack((Stage(name, {**stage.options, key: True}),))


VARIANTS = [attack for name in EVERY for attack in variants(name)]


# --- definitions -------------------------------------------------------------------------------

DEFINITIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "sign_flip": lambda g: -g.sum(0) / len(g),
    "foe": lambda g: -2.0 * g.sum(0) / len(g),
    "foe(tau=0.1)": lambda g: -0.1 * g.sum(0) / len(g),
    "foe(tau=-1)": lambda g: g.sum(0) / len(g),
    "alie(z=1.5)": lambda g: g.mean(0) + 1.5 * deviation(g),
    "alie(z=1.5, sign=-1)": lambda g: g.mean(0) - 1.5 * deviation(g),
    "zero": lambda g: np.zeros(g.shape[1]),
    "huge": lambda g: np.full(g.shape[1], 1e30),
    "huge(value=-2.5)": lambda g: np.full(g.shape[1], -2.5),
    "inf": lambda g: np.full(g.shape[1], math.inf),
    "nan": lambda g: np.full(g.shape[1], math.nan),
}


def deviation(g: np.ndarray) -> np.ndarray:
    return np.sqrt(((g - g.mean(0)) ** 2).sum(0) / len(g))


@pytest.fixture(params=["torch", pytest.param("compiled", marks=pytest.mark.slow)])
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both back ends of the kernels: small inputs go to torch unless nothing is called small."""
    if request.param == "compiled":
        monkeypatch.setattr(kernels, "SMALL", 0)
    return request.param


@pytest.mark.parametrize("text", DEFINITIONS)
@pytest.mark.parametrize("shape", [(7, (1, 4), 12), (2, (0,), 3), (26, (2, 3, 25), 7000)])
def test_definitions(text: str, shape: tuple[int, tuple[int, ...], int], backend: str) -> None:
    view = make(*shape)
    wanted = DEFINITIONS[text](honest_rows(view))
    for message in sent(text, view):
        assert np.allclose(message.numpy(), wanted, rtol=1e-6, atol=1e-7, equal_nan=True)


@pytest.mark.parametrize(
    ("sampled", "byzantine", "z"), [(25, 5, 0.2533), (26, 11, 0.8416), (26, 3, 0.0545)]
)
def test_z_of_alie(sampled: int, byzantine: int, z: float) -> None:
    assert hiding_z(sampled, byzantine) == pytest.approx(z, abs=5e-5)
    view = make(sampled, tuple(range(byzantine)))
    g = honest_rows(view)
    got = sent("alie", view)[0].double().numpy()
    assert np.allclose(got, g.mean(0) + hiding_z(sampled, byzantine) * deviation(g), atol=1e-6)


def test_z_of_alie_is_finite_for_all_numbers() -> None:
    for sampled in range(1, 60):
        found = [hiding_z(sampled, bad) for bad in range(1, sampled + 1)]
        assert np.isfinite(found).all()
        assert min(found) > -0.5
        assert found[-2:] == [0.0] * len(found[-2:])  # nobody or one honest: no deviation


def test_own_sign_flip() -> None:
    view = make()
    own = view.updates[[1, 4]]
    assert torch.equal(sent("sign_flip(own=True)", view), -own)
    assert parse_attack("sign_flip(own=True)").trains


def test_gauss() -> None:
    view = make(width=20_000)
    got = sent("gauss(std=2.0, mean=1.0)", view).double()
    assert got.mean(1).numpy() == pytest.approx([1.0, 1.0], abs=0.06)
    assert got.std(1).numpy() == pytest.approx([2.0, 2.0], rel=0.02)
    assert not torch.equal(got[0], got[1])
    again = make(width=20_000)
    assert torch.equal(sent("gauss(std=2.0, mean=1.0)", again).double(), got)


def test_gauss_writes_into_rows_of_any_type() -> None:
    for dtype in (torch.float64, torch.bfloat16):
        view = make(width=20_000)
        view.updates = view.updates.to(dtype)
        got = sent("gauss(std=2.0, mean=1.0)", view)
        assert got.dtype == dtype
        torch.testing.assert_close(
            got.float(), sent("gauss(std=2.0, mean=1.0)", make(width=20_000)), rtol=1e-2, atol=0
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


def test_deviation_is_stable() -> None:
    tiny = np.array([[1.0], [1.0 + 2**-23], [1.0 + 2**-22]], dtype=np.float32)  # neighbors
    wide = np.array([[1e30, 1e-30], [3e30, 3e-30], [2e30, 2e-30]], dtype=np.float32)
    for values in (tiny, wide):
        got = moments(torch.from_numpy(values), np.arange(3))[1].numpy()
        assert np.allclose(got, deviation(values.astype(np.float64)), rtol=1e-6, atol=0)
    assert moments(torch.ones(3, 2), np.arange(0))[1].tolist() == [0.0, 0.0]


def test_one_pass_or_two_give_the_same_mean(backend: str) -> None:
    view, other = make(width=7000), make(width=7000)
    view.updates[2, 5] = other.updates[2, 5] = math.inf
    torch.testing.assert_close(view.honest_mean, other.honest_moments[0])
    assert same_bits(view.honest_std, other.honest_std)
    assert other.honest_mean is other.honest_moments[0]
    assert view.finite.tolist() == other.finite.tolist() == [0, 3, 5, 6]


@pytest.mark.parametrize("value", [math.nan, math.inf, 3e38])
def test_one_finite_message_is_enough_to_be_informed(value: float) -> None:
    view = make()
    view.updates[torch.from_numpy(view.honest)] = value
    assert view.informed == (value == 3e38)  # its sum is not finite, but it is
    view.updates[6] = 1.0
    assert view.informed
    assert not make(2, (0, 1)).informed


# --- mimic -------------------------------------------------------------------------------------


def unit(v: np.ndarray) -> np.ndarray:
    return v / np.linalg.norm(v)


class PlainMimic:
    """The definition, in float64, with a list of clients."""

    def __init__(self, warmup: int) -> None:
        self.warmup, self.t, self.target = warmup, 0, -1
        self.mu = self.z = np.zeros(0)

    def __call__(self, g: np.ndarray, ids: np.ndarray, start: np.ndarray) -> int:
        t = self.t
        if t < self.warmup:
            self.mu = g.mean(0) if t == 0 else t / (t + 1) * self.mu + g.mean(0) / (t + 1)
            z = start if t == 0 else self.z
            total = unit(sum(((row - self.mu) @ z) * (row - self.mu) for row in g))
            self.z = total if t == 0 else unit(t / (t + 1) * self.z + total / (t + 1))
        if t < self.warmup or self.target not in ids:
            self.target = int(ids[np.argmax(g @ self.z)])
        self.t += 1
        return self.target


def mimic_round(number: int, memory: dict[str, Tensor]) -> View:
    """Ten of thirty clients; those from 20 on are bad, and clients differ by nature."""
    rng = np.random.default_rng([7, number])
    nature = np.random.default_rng(1).standard_normal((30, 40))
    ids = rng.choice(30, 10, replace=False)
    noise = 0.3 * rng.standard_normal((10, 40))
    updates = torch.from_numpy((nature[ids] + noise).astype(np.float32))
    return make(
        10,
        tuple(np.flatnonzero(ids >= 20)),
        40,
        updates=updates,
        ids=ids,
        round=number,
        rng=np.random.default_rng([8, number]),
        memory=memory,
    )


@pytest.mark.parametrize("warmup", [1, 4, 100])
def test_mimic_follows_its_definition(warmup: int, backend: str) -> None:
    attack, plain = parse_attack(f"mimic(warmup={warmup})"), PlainMimic(warmup)
    memory: dict[str, Tensor] = {}
    targets = []
    for number in range(14):
        view = mimic_round(number, memory)
        if not view.byzantine.size:
            continue
        start = mimic_round(number, {}).noise().numpy()
        ids = view.ids[view.honest]
        target = plain(honest_rows(view), ids, start.astype(np.float64))
        messages = sent(attack, view)
        assert int(memory["mimic.target"]) == target
        assert np.allclose(memory["mimic.direction"].numpy(), plain.z, atol=1e-5)
        assert np.allclose(memory["mimic.mean"].numpy(), plain.mu, atol=1e-5)
        row = int(view.honest[np.flatnonzero(ids == target)[0]])
        assert all(torch.equal(message, view.updates[row]) for message in messages)
        targets.append(target)
    assert len(set(targets)) > 2  # subsampling made it choose anew


def test_mimic_keeps_a_target_that_is_sampled() -> None:
    memory: dict[str, Tensor] = {}
    attack = parse_attack("mimic(warmup=2)")
    for number in range(6):
        view = make(seed=number, memory=memory, rng=np.random.default_rng(number))
        message = sent(attack, view)[0]
        if number == 1:
            frozen = int(memory["mimic.target"])
            direction = memory["mimic.direction"]
        if number > 1:
            row = int(np.flatnonzero(view.ids == frozen)[0])
            assert torch.equal(message, view.updates[row])
            assert memory["mimic.direction"] is direction
    view.updates[row, 0] = math.nan  # as good as not sampled
    sent(attack, replace(view, updates=view.updates))
    assert int(memory["mimic.target"]) != frozen


def test_mimic_goes_on_from_saved_memory_with_the_same_bits(backend: str) -> None:
    attack = parse_attack("mimic(warmup=4)")
    straight: dict[str, Tensor] = {}
    broken: dict[str, Tensor] = {}
    for number in range(8):
        broken = safetensors.torch.load(safetensors.torch.save(broken))
        a, b = mimic_round(number, straight), mimic_round(number, broken)
        assert same_bits(sent(attack, a), sent(attack, b))
    assert straight.keys() == broken.keys()
    assert all(same_bits(straight[key], broken[key]) for key in straight)


def test_mimic_never_changes_remembered_tensors() -> None:
    memory: dict[str, Tensor] = {}
    for number in range(5):
        before = {key: (tensor, tensor.clone()) for key, tensor in memory.items()}
        sent("mimic(warmup=3)", mimic_round(number, memory))
        assert all(torch.equal(old, kept) for old, kept in before.values())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("honest", [1, 2, 7])
def test_mimic_of_equal_clients(honest: int, dtype: torch.dtype, backend: str) -> None:
    """What tells them apart is rounding: no direction comes of it."""
    memory: dict[str, Tensor] = {}
    for number in range(5):
        view = make(honest + 1, (0,), 9001, memory=memory)  # the same in each round
        view = replace(view, updates=view.updates.to(dtype))
        view.updates[1:] = view.updates[1].clone()
        before = memory.get("mimic.direction")
        assert torch.equal(sent("mimic(warmup=9)", view)[0], view.updates[1])
        assert before is None or memory["mimic.direction"] is before
        if number == 0:
            torch.testing.assert_close(memory["mimic.mean"], view.updates[1])
    assert float(memory["mimic.direction"].norm()) == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize("size", [1e-7, 1e-5, 1e-3])
def test_mimics_direction_keeps_its_length(size: float, backend: str) -> None:
    """However little the clients differ."""
    memory: dict[str, Tensor] = {}
    for number in range(6):
        view = make(8, (0,), 9001, memory=memory, seed=number)
        view.updates[1:] = 1 + size * view.updates[1:]
        sent("mimic(warmup=9)", view)
        assert float(memory["mimic.direction"].double().norm()) == pytest.approx(1.0, abs=0.02)


# --- the crowd ---------------------------------------------------------------------------------


@pytest.mark.parametrize("trained", [None, 300])
def test_the_crowd_is_what_the_rule_sees_of_the_finite_rows(
    trained: int | None, backend: str
) -> None:
    view = make(9, (0, 5), 400, trained=trained)
    view.updates[3, 399] = math.inf  # in the statistics, if there are any
    view.updates[6, 1] = math.nan
    crowd, rows = view.crowd, [1, 2, 4, 7, 8]
    assert crowd.rows.tolist() == view.finite.tolist() == rows
    g = view.updates[rows].double().numpy()
    mean, std = g.mean(0), g.std(0)
    assert np.allclose(crowd.mean, mean, rtol=1e-5, atol=1e-6)
    assert np.allclose(crowd.std, std, rtol=1e-5, atol=1e-6)
    assert view.honest_mean is crowd.mean
    seen = g[:, :trained] - mean[:trained]
    assert np.allclose(crowd.sq, ((seen[:, None] - seen[None]) ** 2).sum(2), rtol=1e-5)
    assert np.allclose(crowd.gaps, (seen**2).sum(1), rtol=1e-5)
    assert crowd.spread == pytest.approx(np.linalg.norm(std[:trained]), rel=1e-5)
    other = view.noise()
    for v in (crowd.std, crowd.mean, other):
        w = v[:trained].double().numpy()
        assert crowd.squared(v) == pytest.approx(w @ w, rel=1e-5)
        assert np.allclose(crowd.along(v), seen @ w, atol=1e-5 * crowd.spread * np.linalg.norm(w))


def test_a_crowd_of_nobody() -> None:
    view = make(4, (0,))
    view.updates[1:] = math.nan
    assert view.crowd.rows.size == 0
    assert view.crowd.spread == 0.0
    assert not view.crowd.mean.any()


# --- what an attack knows ----------------------------------------------------------------------


def hide(view: View, knows: frozenset[str]) -> View:
    """The same round, with everything else changed that may not be known."""
    updates = view.updates.clone()
    if "honest updates" not in knows:
        updates[torch.from_numpy(view.honest)] = math.nan
    if "own update" not in knows:
        updates[torch.from_numpy(view.byzantine)] = math.nan
    ids = view.ids if "honest updates" in knows else view.ids[::-1].copy()
    rule = view.aggregate if "rule" in knows else None
    rng = copy.deepcopy(view.rng)
    return replace(view, updates=updates, ids=ids, aggregate=rule, rng=rng, memory={})


@pytest.mark.parametrize("attack", VARIANTS, ids=str)
def test_what_is_not_known_does_not_matter(attack: Attack) -> None:
    view = make()
    hidden = hide(view, attack.knows)
    assert np.array_equal(attack.silent(view), attack.silent(hidden))
    if attack.entries[0].hook == "forge" and attack.entries[0].replaces:
        assert same_bits(sent(attack, view), sent(attack, hidden))
    a, b = attack.forge(make(bad=(0, 1, 2))), attack.forge(hide(make(bad=(0, 1, 2)), attack.knows))
    assert (a.model is None) == (b.model is None)
    assert a.model is None or torch.equal(a.model, b.model)  # type: ignore[arg-type]


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attacks registered in a test are gone after it."""
    monkeypatch.setattr(ATTACKS, "_entries", dict(ATTACKS._entries))


@pytest.mark.usefixtures("table")
@pytest.mark.parametrize("name", NEEDS)
@pytest.mark.parametrize("knows", ["nothing", "own update", "honest updates", "rule"])
def test_looking_at_more_than_claimed_is_an_error(name: str, knows: str) -> None:
    @register_forge(knows=knows)
    def curious(view: View) -> Tensor:
        """Looks."""
        getattr(view, name)
        with pytest.raises(AttributeError):
            _ = view._honest
        return view.full(1.0)

    attack = parse_attack("curious")
    if knows in NEEDS[name]:
        assert torch.equal(sent(attack, make()), torch.ones(2, 12))
        return
    with pytest.raises(
        HiddenError, match=rf"curious knows {knows}.*view\.{name}.*knows='"
    ) as error:
        attack.forge(make())
    assert isinstance(error.value, PermissionError)


@pytest.mark.usefixtures("table")
def test_silence_is_restricted_too() -> None:
    @register_silence(replaces=False)
    def shy(view: View) -> Any:
        """Looks."""
        return view.honest_mean.sum() > 0

    with pytest.raises(HiddenError, match="honest_mean"):
        parse_attack("shy").silent(make())


def test_what_each_attack_says() -> None:
    knows = {str(attack): ", ".join(sorted(attack.knows)) or "nothing" for attack in VARIANTS}
    assert knows["sign_flip"] == knows["alie"] == knows["mimic"] == "honest updates"
    assert knows["sign_flip(own=True)"] == "own update"
    assert knows["label_flip"] == "own data"
    assert knows["gauss(std=0.5)"] == knows["silent"] == knows["takeover"] == "nothing"


@pytest.mark.parametrize(
    ("text", "trains"),
    [
        ("none", True),
        ("takeover", True),  # until then, they send what they trained
        ("label_flip", True),
        ("label_flip | takeover", True),
        ("sign_flip(own=True)", True),
        ("label_flip | sign_flip(own=True) | takeover", True),
        ("sign_flip", False),
        ("sign_flip | takeover", False),
        ("silent", False),
        ("nan", False),
    ],
)
def test_who_trains(text: str, trains: bool) -> None:
    assert parse_attack(text).trains == trains


# --- purity and edges --------------------------------------------------------------------------


@pytest.mark.parametrize("attack", VARIANTS, ids=str)
def test_nothing_is_modified(attack: Attack, backend: str) -> None:
    view = make()
    kept, honest, model = view.updates.clone(), view.honest.copy(), view.model.clone()
    forged = attack.forge(view)
    forged.write(view.updates.clone(), view.byzantine)
    attack.silent(view)
    assert torch.equal(view.updates, kept)
    assert torch.equal(view.model, model)
    assert np.array_equal(view.honest, honest)
    if "honest updates" in attack.knows:
        assert np.allclose(view.honest_mean.numpy(), honest_rows(view).mean(0), atol=1e-6)


@pytest.mark.parametrize("attack", VARIANTS, ids=str)
@pytest.mark.parametrize("count", [1, 2, 5, 8])
@pytest.mark.parametrize("bad", [1, 3, 7, 8])
def test_any_number_of_bad_and_honest(attack: Attack, count: int, bad: int) -> None:
    bad = min(bad, count)
    view = make(count, tuple(range(count - bad, count)))
    messages = sent(attack, view)
    assert messages.shape == (bad, 12)
    assert attack.silent(view).shape == (bad,)
    if str(attack) not in ("nan", "inf"):
        assert messages.isfinite().all()
    if bad == count and "honest updates" in attack.knows:
        assert (messages == 0).all()
        assert not view.memory


@pytest.mark.parametrize("attack", VARIANTS, ids=str)
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_honest_rows_that_are_not_finite(attack: Attack, value: float, backend: str) -> None:
    view = make()
    view.updates[2, 5] = value
    without = make()
    without.honest = np.setdiff1d(without.honest, [2])
    messages = sent(attack, view)
    if "honest updates" in attack.knows:
        assert messages.isfinite().all()
        assert same_bits(messages, sent(attack, without))
    view.updates[torch.from_numpy(view.honest)] = value
    if "honest updates" in attack.knows:
        assert (sent(attack, replace(view, memory={})) == 0).all()


@pytest.mark.parametrize("attack", VARIANTS, ids=str)
def test_huge_honest_rows_do_not_crash(attack: Attack, backend: str) -> None:
    view = make()
    view.updates[0], view.updates[2] = 3e38, -3e38
    sent(attack, view)


@pytest.mark.parametrize("name", FORGERS)
def test_statistics_are_forged_like_the_rest(name: str) -> None:
    view = make(width=12)
    wide = make(width=12)
    wide.updates = torch.cat([wide.updates, wide.updates[:, :3]], 1)  # as if three statistics
    if name in ("mimic", "gauss", "min_max", "min_sum") or "rule" in ATTACKS[name].knows:
        return  # their choice depends on all columns
    messages = sent(default(name), wide)
    assert same_bits(messages[:, :12].contiguous(), sent(default(name), view))
    assert same_bits(messages[:, 12:].contiguous(), messages[:, :3].contiguous())


def test_padded_rows_and_doubles() -> None:
    view = make()
    padded = torch.zeros(7, 16)
    padded[:, :12] = view.updates
    for name in OMNISCIENT:
        wide = replace(view, updates=padded[:, :12], rng=np.random.default_rng(5), memory={})
        view = replace(view, rng=np.random.default_rng(5), memory={})
        assert same_bits(sent(default(name), wide), sent(default(name), view))
        double = replace(wide, updates=view.updates.double(), memory={})
        assert sent(default(name), double).dtype == torch.float64


@pytest.mark.slow
@pytest.mark.parametrize("name", OMNISCIENT)
def test_threads_do_not_change_a_bit(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    results = []
    for threads in ("1", "2", "3"):
        monkeypatch.setenv("FEDRO_THREADS", threads)
        results.append(sent(default(name), make(9, (0, 5), 100_000)))
    assert all(same_bits(results[0], other) for other in results[1:])


# --- stages ------------------------------------------------------------------------------------


def test_later_stages_override_and_keep() -> None:
    view = make()
    assert torch.equal(sent("foe | zero", view), torch.zeros(2, 12))
    assert torch.equal(sent("zero | foe", view), sent("foe", view))
    assert torch.equal(sent("foe | none", view), sent("foe", view))
    assert torch.equal(sent("none", view), view.updates[[1, 4]])
    assert parse_attack("foe | label_flip | silent").hooks == {"forge", "poison", "silence"}


@pytest.mark.usefixtures("table")
def test_a_stage_gets_what_the_one_before_sends() -> None:
    @register_forge()
    def doubled(view: View) -> Tensor:
        """Twice."""
        assert isinstance(view.forged.rows, Tensor)
        return 2 * view.forged.rows

    assert torch.allclose(sent("sign_flip | doubled", make()), sent("foe", make()))


@pytest.mark.usefixtures("table")
@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (lambda view: torch.zeros(3), r"sends shape \(3,\): need \(12,\)"),
        (lambda view: torch.zeros(3, 12), r"sends shape \(3, 12\)"),
        (lambda view: [view.full(0.0)], "must send 2 tensors"),
        (lambda view: [view.full(0.0)] * 3, "must send 2 tensors"),
        (lambda view: [view.full(0.0), torch.zeros(5)], "must send 2 tensors"),
        (lambda view: np.zeros(12), "must send 2 tensors"),
        (lambda view: None, "sends nothing"),
        (lambda view: Forged(None, view.model), "sends nothing"),
    ],
)
def test_wrong_messages(returned: Callable[[View], Any], message: str) -> None:
    @register_forge()
    def clumsy(view: View) -> Any:
        """Wrong."""
        return returned(view)

    with pytest.raises(ValueError, match=f"attack clumsy {message}"):
        parse_attack("clumsy").forge(view := make()).write(view.updates, view.byzantine)


@pytest.mark.usefixtures("table")
def test_all_ways_to_send() -> None:
    rows = torch.arange(24.0).reshape(2, 12)
    ways: list[Callable[[], Any]] = [
        lambda: rows,
        lambda: list(rows),
        lambda: (row for row in rows),
        lambda: Forged(iter(rows)),
    ]

    @register_forge()
    def way(view: View, *, number: int = 0) -> Any:
        """One of them."""
        return ways[number]()

    for number in range(len(ways)):
        assert torch.equal(sent(f"way(number={number})", make()), rows)


@pytest.mark.usefixtures("table")
def test_some_are_silent() -> None:
    @register_silence(replaces=False)
    def first(view: View, *, count: int = 1) -> Any:
        """Some."""
        return np.arange(len(view.byzantine)) < count

    @register_silence()
    def sloppy(view: View) -> bool:
        """None, though it says all."""
        return False

    assert parse_attack("first").silent(make()).tolist() == [True, False]
    assert parse_attack("first(count=0) | first").silent(make()).tolist() == [True, False]
    assert parse_attack("first | first(count=0)").silent(make()).tolist() == [True, False]
    assert parse_attack("first").trains
    with pytest.raises(ValueError, match="sloppy: not all are silent"):
        parse_attack("sloppy").silent(make())


# --- texts -------------------------------------------------------------------------------------


def test_texts() -> None:
    assert str(parse_attack(" sign_flip|takeover( at = 'more' ) ")) == (
        "sign_flip | takeover(at='more')"
    )
    assert attacks.sign_flip() | attacks.takeover(at="reach") == parse_attack(
        "sign_flip | takeover(at='reach')"
    )
    assert attacks.foe(tau=np.float64(0.5)) == parse_attack("foe(tau=0.5)")
    assert parse_attack("foe(tau=2)") == parse_attack("foe(tau=2.0)")
    assert hash(parse_attack("foe(tau=2)")) == hash(parse_attack("foe(tau=2.0)"))
    assert parse_attack("foe") != parse_attack("alie")
    assert set(ATTACKS) <= set(attacks.__all__)
    with pytest.raises(AttributeError, match="no_such"):
        _ = attacks.no_such


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("aile", "unknown attack 'aile': did you mean 'alie'"),
        ("foe(tua=1.0)", "unknown option of foe 'tua': did you mean 'tau'"),
        ("foe(tau='big')", "must be of type float"),
        ("foe(tau=1e999)", "must be finite"),
        ("foe(tau=1e39)", "more than float32 holds"),
        (f"foe(tau={10**400})", "more than float32 holds"),
        ("gauss", "gauss needs std"),
        ("gauss(std=-1.0)", "must be at least 0"),
        ("mimic(warmup=0)", "must be at least 1"),
        ("takeover(at='mor')", "unknown at of takeover 'mor': did you mean 'more'"),
        ("alie(sign=2)", "unknown sign of alie 2: Known: 1, -1"),
        ("", "cannot read the attack"),
        ("alie |", "cannot read the attack"),
        ("alie || foe", "cannot read the attack"),
        ("None", "cannot read the attack"),
        ("alie(1)", "cannot read the attack"),
        ("no_such_module:attack", "no module 'no_such_module'"),
        ("fedro.attacks.omniscient:foee", "did you mean 'foe'"),
        ("math:sqrt", "is no attack: put @forge"),
        (":foe", "write an attack of your own as"),
        ("..:foe", "write an attack of your own as"),
        ("a b:foe", "write an attack of your own as"),
    ],
)
def test_texts_that_are_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError) as error:
        parse_attack(text)
    assert message in str(error.value)


def test_only_texts() -> None:
    with pytest.raises(ValueError, match="an attack is a text"):
        parse_attack(None)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="at least one stage"):
        Attack(())
    with pytest.raises(TypeError):
        _ = parse_attack("alie") | "foe"  # type: ignore[operator]


@given(st.text(max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        attack = parse_attack(text)
    except ValueError:
        return  # any other exception fails the test
    assert parse_attack(str(attack)) == attack


def values(annotation: Any, least: float | None) -> st.SearchStrategy[Any]:
    """Values that an option may have."""
    if get_origin(annotation) is Literal:
        return st.sampled_from(get_args(annotation))
    kinds = {
        "float": st.floats(-1e30 if least is None else least, 1e30),
        "int": st.integers(-1000 if least is None else int(least), 1000),
        "bool": st.booleans(),
        "str": st.text(max_size=10),
        "None": st.none(),
    }
    text = str(annotation).removeprefix("<class '").removesuffix("'>")
    return st.one_of(kinds[kind] for kind in text.split(" | "))


@st.composite
def stages(draw: st.DrawFn) -> Stage:
    entry: Entry = ATTACKS[draw(st.sampled_from(EVERY))]
    options = {}
    for key, parameter in entry.options.items():
        if parameter.default is parameter.empty or draw(st.booleans()):
            lists = st.sampled_from(["foe", "alie(z=1.0); zero"])  # of attacks, for `worst`
            shares = st.floats(0.01, 1.0)
            special = {"among": lists, "share": shares, "alpha": shares}
            any_value = values(parameter.annotation, entry.least.get(key))
            options[key] = draw(special.get(key, any_value))
    return Stage(entry.name, options)


@given(st.lists(stages(), min_size=1, max_size=4))
def test_texts_parse_back(parts: list[Stage]) -> None:
    attack = Attack(tuple(parts))
    again = parse_attack(str(attack))
    assert again == attack
    assert hash(again) == hash(attack)
    assert str(again) == str(attack)
    assert again.trains == attack.trains


# --- one function makes an attack --------------------------------------------------------------

MODULE = '''
from fedro.attacks import forge

@forge(knows="own update", source="this test")
def boost(view, *, factor: float = 2.0, label: str = ""):
    """Own updates, enlarged."""
    return (factor * view.own(k) for k in range(len(view.byzantine)))

def plain(view):
    return view.full(0.0)
'''


@pytest.mark.usefixtures("table")
def test_an_attack_of_the_users_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "their_attacks.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    attack = parse_attack("label_flip | their_attacks:boost(factor=3.0) | takeover")
    assert str(attack) == "label_flip | their_attacks:boost(factor=3.0) | takeover"
    assert parse_attack(str(attack)) == attack
    assert attack.trains
    view = make()
    assert torch.equal(sent(attack, view), 3 * view.updates[[1, 4]])
    assert parse_attack("boost").trains  # by its name alone, once it is imported
    assert "| boost(factor=2.0" in as_markdown()
    with pytest.raises(ValueError, match="is no attack"):
        parse_attack("their_attacks:plain")
    with pytest.raises(ValueError, match="did you mean 'factor'"):
        parse_attack("their_attacks:boost(factr=3.0)")
    for label in ("a|b", "it's | (x)", '"', "'\"|\\", "a:b(", "\\'|"):
        quoted = attacks.boost(label=label) | parse_attack("their_attacks:boost | zero")
        assert parse_attack(str(quoted)) == quoted


@pytest.mark.usefixtures("table")
def test_registered_attacks_are_found_everywhere() -> None:
    @register_poison(source="this test")
    def shifted(examples: Examples, classes: int, rng: np.random.Generator) -> Examples:
        """What training on shifted labels gives."""
        return examples._replace(y=(examples.y + 1) % classes)

    examples = Examples(torch.zeros(3, 2), torch.tensor([0, 1, 2]))
    both = parse_attack("shifted | label_flip").poison(examples, 3, np.random.default_rng(0))
    assert both.y.tolist() == [1, 0, 2]
    assert "shifted" in as_text().plain
    with pytest.raises(ValueError, match="already taken"):
        register_forge()(shifted.function)
    with pytest.raises(ValueError, match="did you mean 'honest updates'"):
        register_forge(knows="honest update")


def test_every_attack_is_listed() -> None:
    markdown, text = as_markdown(), as_text().plain
    for name, entry in ATTACKS.items():
        assert f"| {name}" in markdown
        assert entry.summary in text
        assert entry.summary.endswith(".")
        assert name not in vars(attacks)  # else a file hides what makes the attack in Python
    assert "honest updates; own=True: own update" in markdown


@pytest.mark.usefixtures("table")
def test_an_attack_that_calls_the_rule() -> None:
    @register_forge(knows="honest updates, rule")
    def best_factor(view: View) -> Tensor:
        """The multiple of the honest mean that moves the aggregate furthest."""

        def moved(factor: float) -> float:
            matrix, forged = view.updates.clone(), Forged(factor * view.honest_mean)
            forged.write(matrix, view.byzantine)
            assert view.aggregate is not None
            return float((view.aggregate(matrix) - view.honest_mean).norm())

        return max((-3.0, 1.0, 2.0), key=moved) * view.honest_mean

    view = make(aggregate=parse_rule("trimmed_mean", b=2))
    assert torch.equal(sent("best_factor", view)[0], -3.0 * view.honest_mean)
    assert parse_attack("best_factor").knows == {"honest updates", "rule"}
