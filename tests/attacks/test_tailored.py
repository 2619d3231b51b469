"""Attacks that choose their strength for the round, against dense grids, ByzFL and definitions."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

import peers
from attack_cases import (
    STRONG,
    curve_of,
    make_against,
    message_of,
    moved,
)
from fedro import Experiment, run
from fedro.attacks import (
    Defense,
    parse_attack,
    response_curve,
)
from fedro.attacks.defense import trial_messages
from fedro.attacks.response_curve import ResponseCurve
from fedro.attacks.search import OCTAVES
from fedro.attacks.tailored import imagine_round
from fedro.rules import parse_rule

pytestmark = pytest.mark.slow  # its tests train models or start processes


def test_a_reference_that_is_not_finite_makes_the_round_void() -> None:
    bad = Defense(parse_rule("monna"), 3, torch.full((60,), math.nan))
    for attack in ("optimal_foe", "agr_tailored", "ambush", "worst"):
        view = make_against("monna", aggregate=bad)
        assert message_of(attack, view).isfinite().all()


@pytest.mark.parametrize("rule", ["geometric_median", "nnm | trimmed_mean"])
def test_threads_of_torch_do_not_change_a_bit(rule: str) -> None:
    before = torch.get_num_threads()
    found = []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            view = make_against(rule, n=7, bad=2, d=40_000, seed=1)
            each = [
                message_of(a, view)
                for a in ("optimal_foe", "agr_tailored(direction='unit')", "mimic")
            ]
            found.append(torch.cat(each))
    finally:
        torch.set_num_threads(before)
    assert found[0].numpy().tobytes() == found[1].numpy().tobytes()


@pytest.mark.slow
@pytest.mark.parametrize("attack", ["optimal_alie", "optimal_foe"])
@pytest.mark.parametrize("rule", [*STRONG, "bucketing | trimmed_mean", "multi_krum"])
def test_within_a_hundredth_of_a_dense_grid(rule: str, attack: str) -> None:
    for n, bad in ((13, 3), (26, 6)):
        view = make_against(rule, n=n, bad=bad, d=30, seed=n)
        ours = curve_of(view, view.honest_std if attack == "optimal_alie" else -view.honest_mean)
        assert moved(view, message_of(attack, view)) >= 0.99 * best_on_a_dense_grid(ours)


def best_on_a_dense_grid(curve: ResponseCurve) -> float:
    """The largest distance on a grid on both sides of zero, denser around its highest points."""
    sizes = curve.scale * np.logspace(*OCTAVES, 250, base=2.0)
    grid = [curve(float(t)) for t in [*-sizes[::-1], *sizes]]
    highest = sorted(range(len(grid)), key=lambda k: grid[k].distance)[-3:]
    strengths = [response.strength for response in grid]
    for k in highest:
        ends = strengths[max(k - 1, 0)], strengths[min(k + 1, len(strengths) - 1)]
        grid += [curve(float(t)) for t in np.linspace(*ends, 100)]
    return max(response.distance for response in grid)


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["trimmed_mean", "median", "nnm | trimmed_mean"])
def test_also_on_a_sample(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(response_curve, "SAMPLED_COLUMNS", 1024)
    view = make_against(rule, d=20_000)
    scale = curve_of(view, view.honest_std).scale
    with trial_messages(view) as trial:
        sizes = scale * np.logspace(-3, 5, 60, base=2.0)
        means = (
            torch.add(view.honest_mean, view.honest_std, alpha=float(t)) for t in [*sizes, *-sizes]
        )
        best = max(trial(message) for message in means)
    assert moved(view, message_of("optimal_alie", view)) >= 0.99 * best


@pytest.mark.parametrize("rule", STRONG)
def test_never_behind_byzfl(rule: str) -> None:
    """The same rule is attacked; only the searches differ."""
    for seed in range(4):
        view = make_against(rule, seed=seed)
        honest = view.updates[torch.from_numpy(view.honest)]
        for name, kind in (
            ("optimal_alie", "Optimal_ALittleIsEnough"),
            ("optimal_foe", "Optimal_InnerProductManipulation"),
        ):
            make_theirs = getattr(peers.byzfl("attacks"), kind)
            theirs = make_theirs(agg=view.aggregate, pre_agg_list=[], f=len(view.byzantine))
            ours = moved(view, message_of(name, view))
            assert ours >= 0.999 * moved(view, torch.as_tensor(theirs(honest), dtype=torch.float32))


def test_a_rule_of_which_nothing_is_known() -> None:
    view = make_against("median")
    known = message_of("optimal_alie", view)
    plain = make_against("median", aggregate=lambda matrix: matrix.median(0).values)
    unknown = message_of("optimal_alie", plain)
    assert moved(view, unknown) >= 0.95 * moved(view, known)


def test_the_search_uses_only_columns_that_the_rule_aggregates() -> None:
    defense = Defense(parse_rule("krum"), 3, trained=40)
    short = make_against("krum", d=60, trained=40, aggregate=defense)
    short.updates[:, 40:] = 1e6
    message = message_of("optimal_foe", short)
    assert message.shape == (60,)
    cut = make_against("krum", updates=short.updates[:, :40].contiguous(), model=torch.zeros(40))
    torch.testing.assert_close(message[:40], message_of("optimal_foe", cut))


def test_a_void_round_is_not_searched_for() -> None:
    view = make_against("trimmed_mean", n=6, bad=3)
    assert torch.equal(message_of("optimal_foe", view), view.honest_mean)


def plain_message(g: np.ndarray, name: str) -> np.ndarray:
    """ḡ + γp with the largest γ, by halving, as published, with p = −σ and so on."""
    squares = ((g[:, None] - g[None]) ** 2).sum(-1)
    mean = g.mean(0)
    p = {"std": -g.std(0), "sign": -np.sign(mean), "unit": -mean / np.linalg.norm(mean)}
    direction, kind, bound = p[name.split()[1]], name.split()[0], name.split()[2]
    limit = squares.max() if kind == "min_max" else getattr(squares.sum(1), bound)()
    take = np.max if kind == "min_max" else np.sum
    low, high = 0.0, 1e4
    for _ in range(200):
        middle = (low + high) / 2
        fits = take(((mean + middle * direction - g) ** 2).sum(1)) <= limit
        low, high = (middle, high) if fits else (low, middle)
    return np.asarray(mean + low * direction)


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("direction", ["std", "sign", "unit"])
@pytest.mark.parametrize("kind", ["min_max", "min_sum", "min_sum min"])
def test_min_max_and_min_sum(kind: str, direction: str, own: bool) -> None:
    name, _, bound = kind.partition(" ")
    for seed in range(5):
        view = make_against("mean", seed=seed, bad=4, d=9)
        g = view.updates.double().numpy()[view.byzantine if own else view.honest]
        expected = torch.from_numpy(plain_message(g, f"{name} {direction} {bound or 'max'}"))
        extra = f", bound='{bound}'" if bound else ""
        message = message_of(f"{name}(direction='{direction}', own={own}{extra})", view).double()
        torch.testing.assert_close(message, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "attack", ["min_max(own=True)", "min_sum(own=True)", "agr_tailored(own=True)"]
)
def test_no_own_update_is_finite(attack: str) -> None:
    view = make_against("mean")
    view.updates[torch.from_numpy(view.byzantine)] = math.nan
    assert torch.equal(message_of(attack, view), torch.zeros(view.width))


def test_min_max_counts_only_what_the_rule_sees() -> None:
    view = make_against("mean", trained=40, d=60)
    view.updates[:, 40:] *= 1e3
    cut = make_against("mean", d=60, updates=view.updates[:, :40].contiguous())
    torch.testing.assert_close(message_of("min_max", view)[:40], message_of("min_max", cut))


def test_tailored_is_the_best_of_its_directions() -> None:
    view = make_against("nnm | trimmed_mean")
    each = [
        moved(view, message_of(f"agr_tailored(direction='{d}')", view))
        for d in ("std", "sign", "unit")
    ]
    assert moved(view, message_of("agr_tailored", view)) == pytest.approx(max(each), rel=1e-6)


@pytest.mark.parametrize(
    ("n", "bad", "b", "honest", "others", "tolerated"),
    [
        (26, 11, 11, 11, 8, 8),
        (26, 3, 9, 3, 1, 1),
        (26, 1, 1, 2, 1, 1),
        (26, 2, 11, 2, 1, 1),
        (15, 8, 3, 8, 8, 3),
        (9, 9, 4, 9, 9, 8),
        (7, 3, 0, 3, 2, 0),
    ],
)
def test_the_round_that_is_imagined(
    n: int, bad: int, b: int, honest: int, others: int, tolerated: int
) -> None:
    view = make_against(
        "median", n=n, bad=bad, tolerated=b, aggregate=Defense(parse_rule("median"), b)
    )
    seen = imagine_round(view)
    assert (len(seen.honest), len(seen.byzantine), seen.tolerated) == (honest, others, tolerated)
    assert seen.sampled == honest + others
    assert seen.aggregate == Defense(parse_rule("median"), tolerated)
    own = view.own_updates
    assert all(torch.equal(seen.updates[k], own[k % bad]) for k in range(honest))
    assert torch.equal(message_of("agr_tailored(own=True)", view), message_of("agr_tailored", seen))


@pytest.mark.parametrize("rule", ["trimmed_mean", "median", "mean"])
def test_tailored_to_own_updates_is_nearly_as_strong(rule: str) -> None:
    """Against rules that sort; what a rule selects depends on those it was not shown."""
    view = make_against(rule, n=26, bad=11)
    best = moved(view, message_of("agr_tailored", view))
    assert 0.85 * best < moved(view, message_of("agr_tailored(own=True)", view)) <= 1.01 * best


@pytest.mark.parametrize("rule", ["trimmed_mean", "nnm | trimmed_mean", "krum", "geometric_median"])
def test_ambush_strikes_in_an_overrun(rule: str) -> None:
    weak = make_against(rule, bad=3)
    limit = weak.aggregate.rule.kappa(15, 3)  # type: ignore[union-attr]
    spread = weak.dispersion.spread
    quiet = moved(weak, message_of("ambush", weak))
    assert limit is not None
    assert quiet**2 <= limit * spread**2 * 1.0001
    assert torch.equal(message_of("ambush", weak), message_of("optimal_alie", weak))
    strong = make_against(rule, bad=8, tolerated=3, aggregate=Defense(parse_rule(rule), 3))
    assert moved(strong, message_of("ambush", strong)) > 20 * quiet


@pytest.mark.parametrize("rule", STRONG)
def test_worst_is_the_worst(rule: str) -> None:
    view = make_against(rule)
    forged = parse_attack("worst").forge(view)
    assert isinstance(forged.rows, Tensor)
    names = ["sign_flip", "foe", "alie", "min_max", "min_sum", "optimal_alie", "optimal_foe"]
    values = {name: moved(view, message_of(name, view)) for name in names}
    assert moved(view, forged.rows) >= 0.9999 * max(values.values())
    assert forged.name is not None
    assert moved(view, message_of(forged.name, make_against(rule))) == pytest.approx(
        moved(view, forged.rows)
    )


def test_worst_among_some() -> None:
    view = make_against("mean")
    assert parse_attack("worst(among='foe(tau=3); foe(tau=9.0); zero')").forge(view).name == (
        "foe(tau=9.0)"
    )


@pytest.mark.parametrize(
    ("among", "message"),
    [
        ("foe; bar", "unknown attack 'bar'"),
        ("foe(tua=1)", "tua"),
        ("label_flip", "cannot be tried"),
        ("sign_flip(own=True)", "cannot be tried"),
        ("takeover", "cannot be tried"),
        ("gauss(std=1.0)", "cannot be tried"),
        ("foe; worst", "cannot be tried"),
        ("", "attack"),
        (";", "attack"),
    ],
)
def test_candidates_that_are_refused(among: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_attack(f"worst(among={among!r})")


def test_a_run_records_which_attack_was_the_worst() -> None:
    experiment = Experiment(
        clients=12,
        byzantine=3,
        sampled=9,
        tolerated=3,
        rounds=2,
        attack="worst",
        local_steps=1,
        model="logistic",
    )
    rounds = list(run(experiment))
    named = [r for r in rounds if len(r.byzantine)]
    assert named
    for r in named:
        assert r.attack is not None
        assert r.as_dict()["attack"] == r.attack
        parse_attack(r.attack)
    quiet = list(run(experiment.replace(attack="foe")))
    assert all(r.attack is None for r in quiet)
