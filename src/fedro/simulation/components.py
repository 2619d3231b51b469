"""Check the parts that an experiment names, as far as this needs no data."""

from collections.abc import Iterator
from contextlib import contextmanager

from fedro.attacks import parse_attack
from fedro.data.sources import check_source, parse_partition
from fedro.models.networks import check_model
from fedro.rules import Rule, parse_rule
from fedro.simulation.experiment import Experiment, ExperimentError

DEFAULT_MODELS = {
    "digits": "mlp",
    "femnist": "femnist_cnn",
    "cifar10": "cifar_cnn",
    "synthetic": "point",
}


def check_components(experiment: Experiment) -> None:
    """Raise unless rule, attack, data set, partition, model and root can be made as written.

    Names and options must be known, and what is named ``my_module:name`` must be importable.
    """
    e = experiment
    with _error_about(e, "rule"):
        check_rule(parse_rule(e.rule), e)
    with _error_about(e, "attack"):
        parse_attack(e.attack)
    with _error_about(e, "dataset"):
        check_source(e.dataset)
    if e.partition is not None:
        with _error_about(e, "partition"):
            parse_partition(e.partition)
        with _error_about(e, "partition", "dataset"):
            check_source(e.dataset, e.partition)
    if e.model is not None:
        with _error_about(e, "model"):
            check_model(e.model)
    if isinstance(e.root, str):
        with _error_about(e, "root"):
            check_source(e.root)


@contextmanager
def _error_about(experiment: Experiment, *keys: str) -> Iterator[None]:
    """Turn an error of a parser into one that names these keys."""
    try:
        yield
    except ExperimentError:
        raise
    except ValueError as error:
        start = f"{keys[0]}={getattr(experiment, keys[0])!r}: "
        message = start + str(error).removeprefix(start)
        raise ExperimentError(message, keys) from error


def check_rule(rule: Rule, experiment: Experiment) -> None:
    """Raise if the rule names b, or if `root` is missing or superfluous."""
    if rule.b is not None:
        raise ExperimentError(
            f"rule={experiment.rule!r} names b: leave it out, the rule gets the key tolerated",
            ["rule"],
        )
    needs = [entry.name for entry in rule.entries if entry.reference == "needed"]
    if needs and experiment.root is None:
        raise ExperimentError(
            f"rule={experiment.rule!r}: {needs[0]} compares with an update of the server's own; "
            "say how many examples the server trains on, as in root=100",
            ["rule"],
        )
    if experiment.root is not None and not needs:
        raise ExperimentError(
            f"root={experiment.root}: rule={experiment.rule!r} uses no root data", ["root"]
        )


def default_model(dataset: str) -> str:
    """The model that is used with a data set if the experiment names none."""
    name = dataset.partition("(")[0].strip()
    if name not in DEFAULT_MODELS:
        raise ExperimentError(
            f'model is missing: dataset={dataset!r} has no default model; give model="mlp" or '
            'your own as model="my_module:Net"',
            ["dataset"],
        )
    return DEFAULT_MODELS[name]
