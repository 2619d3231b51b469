"""Expand a sweep: from values that may be lists to one named experiment per combination.

>>> expand({"attack": ["none", "alie"], "seed": [0, 1], "byzantine": 2, "clients": 20}).keys()
dict_keys(['attack=none,seed=0', 'attack=none,seed=1', 'attack=alie,seed=0', 'attack=alie,seed=1'])
"""

import functools
import hashlib
import itertools
import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedro.common.registry import unknown
from fedro.simulation.components import check_components, default_model
from fedro.simulation.experiment import (
    KEYS,
    Experiment,
    ExperimentError,
    naming_the_origin,
    parse_changes,
    read_experiment,
    read_toml,
)

MAX_NAME_LENGTH = 120  # characters in the name of a run folder, without a checksum
MAX_RUNS = 10_000
COMPONENTS = ("rule", "attack", "dataset", "partition", "model", "root")


def read_sweep(path: Path | str, changes: Sequence[str] = ()) -> dict[str, Experiment]:
    """Read the experiments of a sweep from a TOML file in which any key may hold a list.

    Every combination of the lists is one experiment. The key `zip` names lists that vary together,
    and `base` names a file beside this one, or a built-in experiment, that supplies other keys.

    Args:
        path: The TOML file.
        changes: Texts like ``"rounds=100"`` or ``"seed=[0, 1, 2]"``, which replace keys.

    Returns:
        The experiments by name. A name tells the varied values, as in ``"rule=mean,seed=0"``.

    Raises:
        ExperimentError: The file does not exist or is not TOML, a key is unknown, a value is not
            allowed, a rule, an attack, a data set, a partition or a model cannot be made as
            written, or the lists make more than 10,000 runs.

    Example:
        >>> import fedro
        >>> list(fedro.read_sweep("demo", ["attack=['alie', 'mimic']"]))
        ['attack=alie', 'attack=mimic']
    """
    values, file = read_toml(path)
    base = values.get("base")
    if isinstance(base, str) and (file.parent / base).is_file():
        values["base"] = str(file.parent / base)
    changed = parse_changes(changes)
    with naming_the_origin(file, changes):
        return expand({**values, **changed})


def expand(values: Mapping[str, Any]) -> dict[str, Experiment]:
    """One experiment by name for every combination of the lists in `values`."""
    values = dict(values)
    base, zip_groups = values.pop("base", None), _zip_groups(values.pop("zip", []))
    if base is not None:
        if not isinstance(base, str):
            message = f"base={base!r}: must be one experiment or file, not a list"
            raise ExperimentError(message, ["base"])
        with _modules_in_current_folder():
            values = {**read_experiment(base).as_given(), **values}
    axes = {key: value for key, value in values.items() if _is_axis(key, value)}
    _check(values, axes, zip_groups)
    fixed = {key: value for key, value in values.items() if key not in axes}
    points = list(itertools.islice(_points(axes, zip_groups), MAX_RUNS + 1))
    if len(points) > MAX_RUNS:
        raise ExperimentError(
            f"these lists make more than {MAX_RUNS:,} runs: leave some values out", axes
        )
    experiments: dict[str, Experiment] = {}
    seen: set[str] = set()
    check_once = functools.cache(_check_components)
    for name, point in zip(_names(points), points, strict=True):
        try:
            experiment = Experiment(**{**fixed, **point})
            check_once(*(getattr(experiment, key) for key in COMPONENTS))
        except ExperimentError as error:
            message = f"in the run {name}: {error}" if axes else str(error)
            raise ExperimentError(message, error.keys) from None
        if (exact := experiment.model_dump_json()) in seen:
            message = f"{name} occurs twice: remove equal values from the lists"
            raise ExperimentError(message, axes)
        seen.add(exact)
        experiments[name] = experiment
    return experiments


def _check_components(*values: Any) -> None:
    """Check the values of the keys in COMPONENTS, so that a misspelt name starts no run."""
    experiment = Experiment(**dict(zip(COMPONENTS, values, strict=True)))
    with _modules_in_current_folder():
        check_components(experiment)
    if experiment.model is None:
        default_model(experiment.dataset)


@contextmanager
def _modules_in_current_folder() -> Iterator[None]:
    """Find modules in the current folder, as the processes of the runs do."""
    sys.path.insert(0, "")
    try:
        yield
    finally:
        sys.path.remove("")


def varied_keys(experiments: Iterable[Experiment]) -> list[str]:
    """The keys in which experiments differ, in the order of the reference."""
    configs = [experiment.as_dict() for experiment in experiments]
    return [
        key for key in KEYS if any(config.get(key) != configs[0].get(key) for config in configs)
    ]


def to_sweep_values(experiments: Sequence[Experiment]) -> dict[str, Any]:
    """The inverse of `expand`: values with one zipped list for each varied key."""
    if not experiments:
        raise ValueError("no experiments: a sweep needs at least one")
    configs = [experiment.as_dict() for experiment in experiments]
    keys = varied_keys(experiments)
    for key in keys:
        if any(key not in config for config in configs):
            raise ValueError(f"{key} is set in some experiments and not in others")
    fixed = {key: value for key, value in configs[0].items() if key not in keys}
    return {**fixed, **{key: [config[key] for config in configs] for key in keys}, "zip": keys}


def _zip_groups(value: object) -> list[list[str]]:
    """Read zip = ["a", "b"], or several such groups."""
    if isinstance(value, list) and value and all(isinstance(key, str) for key in value):
        return [value]
    if isinstance(value, list) and all(
        isinstance(group, list) and all(isinstance(key, str) for key in group) for group in value
    ):
        return value
    raise ExperimentError(
        f'zip={value!r}: name the keys whose lists vary together, like ["sampled", "tolerated"]',
        ["zip"],
    )


def _is_axis(key: str, value: object) -> bool:
    """Whether a value is a list to vary; a schedule of learning rates, [[0, 0.1], …], is not."""
    if not isinstance(value, list):
        return False
    pairs = all(isinstance(item, list) and len(item) == 2 for item in value)
    schedule = key == "client_lr" and pairs and not any(isinstance(item[0], list) for item in value)
    return not (schedule and value)


def _check(values: Mapping[str, Any], axes: Mapping[str, Any], groups: list[list[str]]) -> None:
    for key in values:
        if key not in Experiment.model_fields:
            raise ExperimentError(unknown("key", key, ["base", "zip", *KEYS]), [key])
    for key, items in axes.items():
        if not items:
            raise ExperimentError(f"{key}=[]: a list needs at least one value", [key])
    zipped = [key for group in groups for key in group]
    for key in zipped:
        if key not in axes:
            raise ExperimentError(
                f"zip names {key!r}, which is not a list: the lists are {[*axes]}", ["zip", key]
            )
        if zipped.count(key) > 1:
            raise ExperimentError(f"zip names {key!r} twice", ["zip"])
    for group in groups:
        lengths = {key: len(axes[key]) for key in group}
        if len(set(lengths.values())) > 1:
            message = f"zip: the lists must have the same length, they have {lengths}"
            raise ExperimentError(message, group)


def _points(axes: Mapping[str, list[Any]], zipped: list[list[str]]) -> Iterable[dict[str, Any]]:
    """Every combination, in the order of the keys; a zipped group takes the place of its first."""
    groups: list[list[str]] = []
    for key in axes:
        group = next((group for group in zipped if key in group), [key])
        if group not in groups:
            groups.append(group)
    choices = (
        [{key: axes[key][index] for key in group} for index in range(len(axes[group[0]]))]
        for group in groups
    )
    for parts in itertools.product(*choices):
        yield {key: value for part in parts for key, value in part.items()}


def _names(points: Sequence[Mapping[str, Any]]) -> list[str]:
    """The folder names of the runs: their values, with a checksum where these are ambiguous."""
    names = [
        ",".join(f"{key}={_file_name(value)}" for key, value in point.items()) or "run"
        for point in points
    ]
    uses = Counter(name.casefold() for name in names)  # some disks ignore case
    return [
        name
        if uses[name.casefold()] == 1 and len(name) <= MAX_NAME_LENGTH
        else _with_checksum(name, point)
        for name, point in zip(names, points, strict=True)
    ]


def _with_checksum(name: str, point: Mapping[str, Any]) -> str:
    exact = json.dumps(point, sort_keys=True).encode()
    return f"{name[:MAX_NAME_LENGTH]}-{hashlib.blake2b(exact, digest_size=4).hexdigest()}"


def _file_name(value: object) -> str:
    """A value as text that needs no quotes in a file name or a shell."""
    text = re.sub(r"\s*%\s*$", "pct", str(value))  # 10% of the clients are not 10 of them
    return re.sub(r"[^A-Za-z0-9._+-]+", "-", text).rstrip("-")
