"""The runs of all figures: the paper's settings at every scale."""

import itertools

import pytest

from fedro.paper import FIGURES, FigureRequest
from fedro.paper.figure import SCALES
from fedro.simulation.sweeps import expand, to_sweep_values
from paper_cases import planned


@pytest.mark.parametrize("figure", FIGURES)
@pytest.mark.parametrize("scale", SCALES)
def test_studies_have_runs_of_their_own_names(figure: str, scale: str) -> None:
    runs = planned(figure, scale)
    assert len(runs.experiments) == sum(len(panel.runs) for panel in runs.panels)
    assert bool(runs.reductions) == (
        scale != "paper" and not (figure == "fig1" and scale == "desk")
    )
    for panel in runs.panels:
        for settings, experiment in panel.runs.values():
            shown = experiment.as_dict()
            assert all(shown[key] == value for key, value in settings.items() if key in shown)


def test_figures_3_and_4_have_the_settings_of_the_papers_tables() -> None:
    for name, b, extra in (("fig3", 15, {}), ("fig4", 30, {"client_lr": "1/K"})):
        for panel in planned(name, "paper").panels:
            sampled, rounds, rate = {"femnist": (26, 500, 1.0), "cifar10": (29, 1500, 0.25)}[
                panel.dataset
            ]
            for _, e in panel.runs.values():
                assert (e.clients, e.byzantine, e.sampled) == (150, b, sampled)
                assert (e.rounds, e.server_lr, e.l2) == (rounds, rate, 1e-4)
                assert "takeover" not in e.attack
                assert all(getattr(e, key) == value for key, value in extra.items())
    steps = {e.local_steps for e in planned("fig4", "paper").experiments.values()}
    assert (min(steps), max(steps)) == (5, 35)
    text = (
        FIGURES["fig4"]
        .plan_runs(FigureRequest("paper", "text", only="cifar10"))
        .experiments.values()
    )
    assert {e.byzantine for e in text} == {15}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"scale": "huge"}, "unknown scale 'huge'"),
        ({"reading": "figure"}, "unknown reading 'figure'"),
        ({"seeds": 0}, "seeds"),
    ],
)
def test_unknown_wishes_are_explained(values: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        FigureRequest(**values)


def test_one_data_set_of_several() -> None:
    (panel,) = planned("fig3", "desk", only="cifar10").panels
    assert panel.dataset == "cifar10"
    with pytest.raises(ValueError, match=r"unknown data set 'mnist'.* Known: femnist, cifar10"):
        planned("fig3", "desk", only="mnist")


def test_desk_and_paper_have_the_same_points_where_they_can() -> None:
    """What is saved is never what the claim is about: n̂ in Figure 2, attacks in 3 and 4."""
    for name, key in (("fig2", "sampled"), ("fig3", "attack"), ("fig4", "attack")):
        desk, paper = (
            {getattr(e, key) for e in planned(name, scale).experiments.values()}
            for scale in ("desk", "paper")
        )
        assert desk == paper


def test_experiments_are_valid_sweeps() -> None:
    for name, scale in itertools.product(("fig2", "fig4"), SCALES):
        for panel in planned(name, scale).panels:
            experiments = [experiment for _, experiment in panel.runs.values()]
            assert list(expand(to_sweep_values(experiments)).values()) == experiments
