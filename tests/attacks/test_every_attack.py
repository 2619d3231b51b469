"""What must hold for every attack: it modifies nothing and copes with every round."""

import copy
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from attack_cases import (
    FORGERS,
    OMNISCIENT,
    VARIANTS,
    default,
    honest_rows,
    make,
    same_bits,
    sent,
)
from fedro.attacks import (
    ATTACKS,
    Attack,
    View,
)


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
        left = 0 if attack.entries[0].replaces else view.updates
        assert (messages == left).all()
        assert not view.memory


@pytest.mark.parametrize("attack", VARIANTS, ids=str)
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_honest_rows_that_are_not_finite(attack: Attack, value: float, backend: str) -> None:
    view = make()
    own = view.updates[torch.from_numpy(view.byzantine)]
    view.updates[2, 5] = value
    without = make()
    without.honest = np.setdiff1d(without.honest, [2])
    messages = sent(attack, view)
    if "honest updates" in attack.knows:
        assert messages.isfinite().all()
        assert same_bits(messages, sent(attack, without))
    view.updates[torch.from_numpy(view.honest)] = value
    if "honest updates" in attack.knows:
        left = 0 if attack.entries[0].replaces else own
        assert (sent(attack, replace(view, memory={})) == left).all()


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
    with_all_columns = ("mimic", "gauss", "min_max", "min_sum", "noisy", "below_the_line")
    if name in with_all_columns or "rule" in ATTACKS[name].knows:
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
    results = []  # of three blocks of columns
    for threads in ("1", "2"):
        monkeypatch.setenv("FEDRO_THREADS", threads)
        results.append(sent(default(name), make(9, (0, 5), 70_000)))
    assert all(same_bits(results[0], other) for other in results[1:])
