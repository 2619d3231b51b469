"""The response curve against the rule itself."""

import pytest
import torch

from attack_cases import (
    DIRECTIONS,
    curve_of,
    make_against,
    message_of,
    moved,
)
from fedro.attacks import (
    Defense,
    response_curve,
)
from fedro.attacks.defense import trial_messages
from fedro.rules import RULES, parse_rule

pytestmark = pytest.mark.slow  # its tests train models or start processes

NEED = {"clip": "clip(limit=4.0)", "norm_clip": "norm_clip(limit=4.0)"}


EVERY_RULE = [
    *(NEED.get(name, name) for name, entry in RULES.items() if not entry.mixer),
    *(f"{NEED.get(name, name)} | trimmed_mean" for name, entry in RULES.items() if entry.mixer),
    "krum(original=True)",
    "centered_clipping(tau=2.0)",
    "nnm | krum",
    "nnm | arc | median",
]


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("rule", EVERY_RULE)
def test_the_curve_is_what_the_rule_does(rule: str, direction: str) -> None:
    for seed in range(3):
        view = make_against(rule, seed=seed)
        v = DIRECTIONS[direction](view)
        ours = curve_of(view, v)
        for t in (-1000.0, -3.0, -0.4, 0.02, 0.7, 1.5, 2.5, 40.0):
            t *= ours.scale
            true = moved(view, torch.add(view.honest_mean, v, alpha=t))
            assert ours(t).distance == pytest.approx(
                true, rel=2e-5, abs=1e-5 * ours.honest.dispersion.spread
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
def test_the_curve_drops_rows_as_the_rule_does(rule: str, size: float) -> None:
    """An honest row that is far from all others, which may be equal."""
    view = make_against(rule, n=11, bad=2, aggregate=Defense(parse_rule(rule), 3), tolerated=3)
    rows = torch.from_numpy(view.honest)
    view.updates[rows] = view.updates[rows] * (size > 0)
    view.updates[rows[0]] = max(size, 1.0)
    v = DIRECTIONS["noise"](view)
    ours = curve_of(view, v)
    for t in (-2.0, 0.3, 30.0):
        true = moved(view, torch.add(view.honest_mean, v, alpha=t))
        near = pytest.approx(true, rel=1e-3, abs=1e-5 * ours.honest.dispersion.spread)
        assert ours(t).distance == near


def test_the_view_and_the_rule_see_the_same_columns() -> None:
    view = make_against("krum", aggregate=Defense(parse_rule("krum"), 3, trained=40))
    with pytest.raises(ValueError, match="trained=40 columns, but the view trained=None"):
        message_of("optimal_foe", view)
    message_of("optimal_foe", make_against("krum", aggregate=view.aggregate, trained=40))


def test_a_small_layer_with_large_updates_is_in_the_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(response_curve, "SAMPLED_COLUMNS", 2048)
    view = make_against("trimmed_mean", d=50_000)
    view.updates[:, 30_021:30_121] *= 100.0
    best = 0.0
    v = -view.honest_mean.sign()
    scale = curve_of(view, v).scale
    with trial_messages(view) as trial:
        for t in (2.0**k * sign * scale for k in range(-4, 10) for sign in (1, -1)):
            best = max(best, trial(torch.add(view.honest_mean, v, alpha=t)))
    assert moved(view, message_of("agr_tailored(direction='sign')", view)) >= 0.98 * best


def test_a_sample_of_columns_stands_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(response_curve, "SAMPLED_COLUMNS", 4096)
    for rule in ("trimmed_mean", "nnm | median"):
        view = make_against(rule, d=40_000)
        ours = curve_of(view, view.honest_std)
        for t in (0.5 * ours.scale, 2 * ours.scale):
            true = moved(view, torch.add(view.honest_mean, view.honest_std, alpha=t))
            assert ours(t).distance == pytest.approx(true, rel=0.05, abs=1e-3)
        assert not ours.exact
        assert 3000 <= len(ours.honest.sampled_columns) <= 4096
        assert ours.honest.columns_represented.sum() == pytest.approx(40_000)
    assert curve_of(make_against("krum", d=40_000), torch.ones(40_000)).exact
