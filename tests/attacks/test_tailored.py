"""Attacks made for the rule: the sketch against the rule itself, and the search against a grid."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import peers
from fedro import Experiment, run
from fedro.attacks import Defense, Forged, View, parse_attack
from fedro.attacks.defense import trying
from fedro.attacks.response_curve import Honest, Landscape
from fedro.attacks.search import OCTAVES, Look, climb, peaks
from fedro.attacks.tailored import imagined
from fedro.rules import RULES, parse_rule

NEED = {"clip": "clip(limit=4.0)", "norm_clip": "norm_clip(limit=4.0)"}
EVERY = [
    *(NEED.get(name, name) for name, entry in RULES.items() if not entry.mixer),
    *(f"{NEED.get(name, name)} | trimmed_mean" for name, entry in RULES.items() if entry.mixer),
    "krum(original=True)",
    "centered_clipping(tau=2.0)",
    "nnm | krum",
    "nnm | arc | median",
]
STRONG = ["krum", "geometric_median", "median", "trimmed_mean", "nnm | trimmed_mean", "mda"]


def make(rule: str, n: int = 15, bad: int = 3, d: int = 60, seed: int = 0, **changes: Any) -> View:
    """A round against a rule: n clients, of which some are bad."""
    rng = np.random.default_rng(seed)
    updates = rng.standard_normal((n, d)) * rng.uniform(0.2, 2.0, d) + rng.uniform(-0.5, 0.5, d)
    parsed = parse_rule(rule)
    needs = any(entry.reference == "needed" for entry in parsed.entries)
    defense = Defense(parsed, bad, torch.full((d,), 0.1) if needs else None, seed=4)
    fields: dict[str, Any] = {
        "updates": torch.from_numpy(updates.astype(np.float32)),
        "byzantine": np.sort(rng.choice(n, bad, replace=False)),
        "ids": np.arange(n),
        "model": torch.zeros(d),
        "server_lr": 1.0,
        "tolerated": bad,
        "round": 0,
        "rng": np.random.default_rng(5),
        "aggregate": defense,
    }
    fields["honest"] = np.setdiff1d(np.arange(n), fields["byzantine"])
    return View(**{**fields, **changes})


def moved(view: View, message: Tensor) -> float:
    """‖A − ḡ‖, by the rule itself on a matrix made for it."""
    matrix = view.updates.clone()
    Forged(message).write(matrix, view.byzantine)
    assert isinstance(view.aggregate, Defense)
    gap = view.aggregate(matrix).double() - matrix[torch.from_numpy(view.honest)].double().mean(0)
    return float(gap.norm())


def sent(attack: str, view: View) -> Tensor:
    """The message that all bad clients send."""
    rows = parse_attack(attack).forge(view).rows
    assert isinstance(rows, Tensor)
    return rows


def of(view: View, direction: Tensor) -> Landscape:
    assert isinstance(view.aggregate, Defense)
    return Landscape(Honest(view, view.aggregate), direction, view.aggregate)


DIRECTIONS = {
    "std": lambda view: view.honest_std,
    "mean": lambda view: -view.honest_mean,
    "noise": lambda view: torch.randn(view.width, generator=torch.Generator().manual_seed(1)),
}


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("rule", EVERY)
def test_the_sketch_is_the_rule(rule: str, direction: str) -> None:
    for seed in range(3):
        view = make(rule, seed=seed)
        v = DIRECTIONS[direction](view)
        ours = of(view, v)
        for t in (-1000.0, -3.0, -0.4, 0.02, 0.7, 1.5, 2.5, 40.0):
            t *= ours.scale
            true = moved(view, torch.add(view.honest_mean, v, alpha=t))
            assert ours.look(t).value == pytest.approx(
                true, rel=2e-5, abs=1e-5 * ours.honest.crowd.spread
            )
        assert ours.exact


@pytest.mark.parametrize(
    "rule",
    [
        "arc | krum",
        "nnm | arc | median",
        "arc | nnm | trimmed_mean",
        "nnm | clip(limit=1.0) | median",
    ],
)
@pytest.mark.parametrize("size", [0.0, 1e8])
def test_the_sketch_drops_rows_as_the_rule_does(rule: str, size: float) -> None:
    """An honest row that is far from all others, which may be equal."""
    view = make(rule, n=11, bad=2, aggregate=Defense(parse_rule(rule), 3), tolerated=3)
    rows = torch.from_numpy(view.honest)
    view.updates[rows] = view.updates[rows] * (size > 0)
    view.updates[rows[0]] = max(size, 1.0)
    v = DIRECTIONS["noise"](view)
    ours = of(view, v)
    for t in (-2.0, 0.3, 30.0):
        true = moved(view, torch.add(view.honest_mean, v, alpha=t))
        near = pytest.approx(true, rel=1e-3, abs=1e-5 * ours.honest.crowd.spread)
        assert ours.look(t).value == near


def test_the_view_and_the_rule_see_the_same_columns() -> None:
    view = make("krum", aggregate=Defense(parse_rule("krum"), 3, trained=40))
    with pytest.raises(ValueError, match="trained=40 columns, but the view trained=None"):
        sent("optimal_foe", view)
    sent("optimal_foe", make("krum", aggregate=view.aggregate, trained=40))


def test_a_reference_that_is_not_finite_makes_the_round_void() -> None:
    bad = Defense(parse_rule("monna"), 3, torch.full((60,), math.nan))
    for attack in ("optimal_foe", "agr_tailored", "ambush", "worst"):
        view = make("monna", aggregate=bad)
        assert sent(attack, view).isfinite().all()


def test_a_small_layer_with_large_updates_is_in_the_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(response_curve, "SAMPLE", 2048)
    view = make("trimmed_mean", d=50_000)
    view.updates[:, 30_021:30_121] *= 100.0
    best = 0.0
    v = -view.honest_mean.sign()
    scale = of(view, v).scale
    with trying(view) as trial:
        for t in (2.0**k * sign * scale for k in range(-4, 10) for sign in (1, -1)):
            best = max(best, trial(torch.add(view.honest_mean, v, alpha=t)))
    assert moved(view, sent("agr_tailored(direction='sign')", view)) >= 0.98 * best


@pytest.mark.parametrize("rule", ["geometric_median", "nnm | trimmed_mean"])
def test_threads_of_torch_do_not_change_a_bit(rule: str) -> None:
    before = torch.get_num_threads()
    found = []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            view = make(rule, n=7, bad=2, d=40_000, seed=1)
            each = [
                sent(a, view) for a in ("optimal_foe", "agr_tailored(direction='unit')", "mimic")
            ]
            found.append(torch.cat(each))
    finally:
        torch.set_num_threads(before)
    assert found[0].numpy().tobytes() == found[1].numpy().tobytes()


def test_a_sample_of_columns_stands_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(response_curve, "SAMPLE", 4096)
    for rule in ("trimmed_mean", "nnm | median"):
        view = make(rule, d=40_000)
        ours = of(view, view.honest_std)
        for t in (0.5 * ours.scale, 2 * ours.scale):
            true = moved(view, torch.add(view.honest_mean, view.honest_std, alpha=t))
            assert ours.look(t).value == pytest.approx(true, rel=0.05, abs=1e-3)
        assert not ours.exact
        assert 3000 <= len(ours.honest.index) <= 4096
        assert ours.honest.counts.sum() == pytest.approx(40_000)
    assert of(make("krum", d=40_000), torch.ones(40_000)).exact


# --- the search ----------------------------------------------------------------------------------


@pytest.mark.parametrize("top", [-300.0, -0.03, 0.02, 1.0, 7.3, 900.0])
def test_the_search_finds_a_peak(top: float) -> None:
    def smooth(t: float) -> Look:
        return Look(math.exp(-(math.log(abs(t / top)) ** 2)) * (t * top > 0), t)

    found = peaks(smooth, 1.0)[0]
    assert found.at == pytest.approx(top, rel=0.05)
    assert found.value > 0.998


@pytest.mark.parametrize("top", [-300.0, -0.03, 0.02, 1.0, 7.3, 900.0])
@pytest.mark.parametrize("plateau", [0.1, 0.9])
def test_the_search_finds_a_cliff(top: float, plateau: float) -> None:
    def cliff(t: float) -> Look:
        follows = 0 <= t / top <= 1
        return Look(t / top if follows else plateau, t, share=float(follows))

    assert peaks(cliff, 1.0)[0].value > 0.99


@pytest.mark.parametrize("top", [1.03, 1.5, 1.83, 1.97])
@pytest.mark.parametrize("stages", [[0.5, 0.33, 0.17, 0.08], [0.5, 0.25, 0.125], [0.26, 0.21, 0.0]])
def test_the_search_finds_the_first_of_several_cliffs(top: float, stages: list[float]) -> None:
    """Copies of a message are dropped one after the other."""

    def staged(t: float) -> Look:
        share = stages[min(int(max(t / top - 1, 0) * 20), len(stages) - 1)] if t > 0 else 0.0
        return Look(share * t, t, share)

    assert peaks(staged, 1.0)[0].value > 0.99 * stages[0] * top


def test_the_search_finds_what_is_taken_in_once_more() -> None:
    def again(t: float) -> Look:
        share = float(0 < t < 1.19 or 1.25 < t < 1.32)
        return Look(share * t, t, share)

    assert peaks(again, 1.0)[0].value > 0.99 * 1.32


def test_the_search_of_something_smooth_takes_few_looks() -> None:
    """A share that falls as one over the strength has no edge; each look may cost much."""
    seen = []

    def smooth(t: float) -> Look:
        seen.append(t)
        return Look(abs(t) / (1 + abs(t)), t, share=1 / (1 + abs(t)))

    assert peaks(smooth, 1.0)[0].value > 0.99
    assert len(seen) < 75


def test_the_search_takes_the_highest_of_several() -> None:
    def hills(t: float) -> Look:
        return Look(math.exp(-((t - 3) ** 2)) + 1.5 * math.exp(-((t + 40) ** 2) / 99), t)

    found = peaks(hills, 1.0)
    assert found[0].at == pytest.approx(-40, rel=0.02)
    assert found == sorted(found, reverse=True)


def test_the_search_of_something_flat_or_growing() -> None:
    assert peaks(lambda t: Look(0.0, t), 1.0)[0].value == 0.0
    assert peaks(lambda t: Look(abs(t), t), 2.0)[0].value == 2.0 * 2 ** OCTAVES[1]
    assert climb(lambda t: Look(0.5, t), Look(0.1, 1.0), Look(3.0, 9.0), Look(0.1, 2.0)) == Look(
        3.0, 9.0
    )


@pytest.mark.slow
@pytest.mark.parametrize("attack", ["optimal_alie", "optimal_foe"])
@pytest.mark.parametrize("rule", [*STRONG, "bucketing | trimmed_mean", "multi_krum"])
def test_within_a_hundredth_of_a_dense_grid(rule: str, attack: str) -> None:
    for n, bad in ((13, 3), (26, 6)):
        view = make(rule, n=n, bad=bad, d=30, seed=n)
        ours = of(view, view.honest_std if attack == "optimal_alie" else -view.honest_mean)
        sizes = ours.scale * np.logspace(OCTAVES[0], OCTAVES[1], 1000, base=2.0)
        best = max(ours.look(float(t)).value for t in [*sizes, *-sizes])
        assert moved(view, sent(attack, view)) >= 0.99 * best


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["trimmed_mean", "median", "nnm | trimmed_mean"])
def test_also_on_a_sample(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(response_curve, "SAMPLE", 1024)
    view = make(rule, d=20_000)
    scale = of(view, view.honest_std).scale
    with trying(view) as trial:
        sizes = scale * np.logspace(-3, 5, 60, base=2.0)
        means = (
            torch.add(view.honest_mean, view.honest_std, alpha=float(t)) for t in [*sizes, *-sizes]
        )
        best = max(trial(message) for message in means)
    assert moved(view, sent("optimal_alie", view)) >= 0.99 * best


@pytest.mark.parametrize("rule", STRONG)
def test_never_behind_byzfl(rule: str) -> None:
    """The same rule is attacked; only the searches differ."""
    for seed in range(4):
        view = make(rule, seed=seed)
        honest = view.updates[torch.from_numpy(view.honest)]
        for name, kind in (
            ("optimal_alie", "Optimal_ALittleIsEnough"),
            ("optimal_foe", "Optimal_InnerProductManipulation"),
        ):
            make_theirs = getattr(peers.byzfl("attacks"), kind)
            theirs = make_theirs(agg=view.aggregate, pre_agg_list=[], f=len(view.byzantine))
            ours = moved(view, sent(name, view))
            assert ours >= 0.999 * moved(view, torch.as_tensor(theirs(honest), dtype=torch.float32))


def test_a_rule_of_which_nothing_is_known() -> None:
    view = make("median")
    known = sent("optimal_alie", view)
    plain = make("median", aggregate=lambda matrix: matrix.median(0).values)
    unknown = sent("optimal_alie", plain)
    assert moved(view, unknown) >= 0.95 * moved(view, known)


def test_it_looks_only_at_what_the_rule_sees() -> None:
    defense = Defense(parse_rule("krum"), 3, trained=40)
    short = make("krum", d=60, trained=40, aggregate=defense)
    short.updates[:, 40:] = 1e6
    message = sent("optimal_foe", short)
    assert message.shape == (60,)
    cut = make("krum", updates=short.updates[:, :40].contiguous(), model=torch.zeros(40))
    torch.testing.assert_close(message[:40], sent("optimal_foe", cut))


def test_a_void_round_is_not_searched_for() -> None:
    view = make("trimmed_mean", n=6, bad=3)
    assert torch.equal(sent("optimal_foe", view), view.honest_mean)


def test_a_slope_is_not_taken_for_a_cliff() -> None:
    """Weights 1/distance leave half of the share with each octave, and have no edge."""
    looks = []

    def gentle(t: float) -> Look:
        looks.append(t)
        share = 1 / (1 + abs(t))
        return Look(abs(t) * share, t, share)

    def steep(t: float) -> Look:
        share = 1.0 if abs(t) < 3.3 else 0.5 if abs(t) < 7.7 else 0.0
        return Look(abs(t) * share, t, share)

    assert peaks(gentle, 1.0)[0].value > 0.999
    assert len(looks) < 75
    assert peaks(steep, 1.0)[0].value == pytest.approx(7.7 / 2, rel=0.01)


# --- the others ----------------------------------------------------------------------------------


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
        view = make("mean", seed=seed, bad=4, d=9)
        g = view.updates.double().numpy()[view.byzantine if own else view.honest]
        expected = torch.from_numpy(plain_message(g, f"{name} {direction} {bound or 'max'}"))
        extra = f", bound='{bound}'" if bound else ""
        message = sent(f"{name}(direction='{direction}', own={own}{extra})", view).double()
        torch.testing.assert_close(message, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "attack", ["min_max(own=True)", "min_sum(own=True)", "agr_tailored(own=True)"]
)
def test_no_own_update_is_finite(attack: str) -> None:
    view = make("mean")
    view.updates[torch.from_numpy(view.byzantine)] = math.nan
    assert torch.equal(sent(attack, view), torch.zeros(view.width))


def test_min_max_counts_only_what_the_rule_sees() -> None:
    view = make("mean", trained=40, d=60)
    view.updates[:, 40:] *= 1e3
    cut = make("mean", d=60, updates=view.updates[:, :40].contiguous())
    torch.testing.assert_close(sent("min_max", view)[:40], sent("min_max", cut))


def test_tailored_is_the_best_of_its_directions() -> None:
    view = make("nnm | trimmed_mean")
    each = [
        moved(view, sent(f"agr_tailored(direction='{d}')", view)) for d in ("std", "sign", "unit")
    ]
    assert moved(view, sent("agr_tailored", view)) == pytest.approx(max(each), rel=1e-6)


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
    view = make("median", n=n, bad=bad, tolerated=b, aggregate=Defense(parse_rule("median"), b))
    seen = imagined(view)
    assert (len(seen.honest), len(seen.byzantine), seen.tolerated) == (honest, others, tolerated)
    assert seen.sampled == honest + others
    assert seen.aggregate == Defense(parse_rule("median"), tolerated)
    own = view.own_updates
    assert all(torch.equal(seen.updates[k], own[k % bad]) for k in range(honest))
    assert torch.equal(sent("agr_tailored(own=True)", view), sent("agr_tailored", seen))


@pytest.mark.parametrize("rule", ["trimmed_mean", "median", "mean"])
def test_tailored_to_own_updates_is_nearly_as_strong(rule: str) -> None:
    """Against rules that sort; what a rule selects depends on those it was not shown."""
    view = make(rule, n=26, bad=11)
    best = moved(view, sent("agr_tailored", view))
    assert 0.85 * best < moved(view, sent("agr_tailored(own=True)", view)) <= 1.01 * best


@pytest.mark.parametrize("rule", ["trimmed_mean", "nnm | trimmed_mean", "krum", "geometric_median"])
def test_the_planners_attacker_strikes_when_it_can(rule: str) -> None:
    weak = make(rule, bad=3)
    limit = weak.aggregate.rule.kappa(15, 3)  # type: ignore[union-attr]
    spread = weak.crowd.spread
    quiet = moved(weak, sent("ambush", weak))
    assert limit is not None
    assert quiet**2 <= limit * spread**2 * 1.0001
    assert torch.equal(sent("ambush", weak), sent("optimal_alie", weak))
    strong = make(rule, bad=8, tolerated=3, aggregate=Defense(parse_rule(rule), 3))
    assert moved(strong, sent("ambush", strong)) > 20 * quiet


# --- the worst -----------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", STRONG)
def test_worst_is_the_worst(rule: str) -> None:
    view = make(rule)
    forged = parse_attack("worst").forge(view)
    assert isinstance(forged.rows, Tensor)
    names = ["sign_flip", "foe", "alie", "min_max", "min_sum", "optimal_alie", "optimal_foe"]
    values = {name: moved(view, sent(name, view)) for name in names}
    assert moved(view, forged.rows) >= 0.9999 * max(values.values())
    assert forged.name is not None
    assert moved(view, sent(forged.name, make(rule))) == pytest.approx(moved(view, forged.rows))


def test_worst_among_some() -> None:
    view = make("mean")
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


def test_a_run_records_which_it_was() -> None:
    experiment = Experiment(
        clients=12, byzantine=3, sampled=9, tolerated=3, rounds=3, attack="worst", local_steps=2
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
