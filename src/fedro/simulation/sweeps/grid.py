"""From one file with lists to many experiments, each with a name.

>>> expand({"attack": ["none", "alie"], "seed": [0, 1], "byzantine": 2, "clients": 20}).keys()
dict_keys(['attack=none,seed=0', 'attack=none,seed=1', 'attack=alie,seed=0', 'attack=alie,seed=1'])
"""

import hashlib
import itertools
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedro.common.registry import unknown
from fedro.simulation.experiment import (
    Experiment,
    ExperimentError,
    parse_changes,
    read_experiment,
    read_toml,
)

LONGEST = 120  # characters in the name of a run's folder
MOST = 10_000  # runs


def read_sweep(path: Path | str, changes: Sequence[str] = ()) -> dict[str, Experiment]:
    """From a TOML file, with ``key=value`` changes; a base file is looked for beside it."""
    values, file = read_toml(path)
    base = values.get("base")
    if isinstance(base, str) and (file.parent / base).is_file():
        values["base"] = str(file.parent / base)
    try:
        return expand({**values, **parse_changes(changes)})
    except ExperimentError as error:
        raise ExperimentError(f"{file}: {error}") from None


def expand(values: Mapping[str, Any]) -> dict[str, Experiment]:
    """Every combination of the lists in `values`, by name; lists that are zipped go together."""
    values = dict(values)
    base, zipped = values.pop("base", None), _groups(values.pop("zip", []))
    if base is not None:
        if not isinstance(base, str):
            raise ExperimentError(f"base={base!r}: name one experiment or file, it is no list")
        values = {**read_experiment(base).as_dict(), **values}
    axes = {key: value for key, value in values.items() if _is_axis(key, value)}
    _check(values, axes, zipped)
    rest = {key: value for key, value in values.items() if key not in axes}
    points = list(itertools.islice(_points(axes, zipped), MOST + 1))
    if len(points) > MOST:
        raise ExperimentError(f"these lists make more than {MOST:,} runs: leave some values out")
    experiments: dict[str, Experiment] = {}
    seen: set[str] = set()
    for name, point in zip(_names(points), points, strict=True):
        try:
            experiment = Experiment(**{**rest, **point})
        except ExperimentError as error:
            raise ExperimentError(f"in the run {name}: {error}" if axes else str(error)) from None
        if (exact := experiment.model_dump_json()) in seen:
            raise ExperimentError(f"{name} is there twice: leave equal values out of the lists")
        seen.add(exact)
        experiments[name] = experiment
    return experiments


def varied(experiments: Iterable[Experiment]) -> list[str]:
    """The keys in which experiments differ, in the order of an experiment's keys."""
    rows = [experiment.as_dict() for experiment in experiments]
    return [key for key in Experiment.model_fields if any(_differ(rows, key))]


def zipped(experiments: Sequence[Experiment]) -> dict[str, Any]:
    """The values that `expand` makes these experiments of, with one list for each varied key."""
    if not experiments:
        raise ValueError("no experiments: there is nothing to vary")
    rows = [experiment.as_dict() for experiment in experiments]
    keys = varied(experiments)
    if lost := [key for key in keys if any(key not in row for row in rows)]:
        raise ValueError(f"{lost[0]} is set in some experiments and not in others")
    fixed = {key: value for key, value in rows[0].items() if key not in keys}
    return {**fixed, **{key: [row[key] for row in rows] for key in keys}, "zip": keys}


def _differ(rows: list[dict[str, Any]], key: str) -> Iterable[bool]:
    return (row.get(key) != rows[0].get(key) for row in rows)


def _groups(zipped: object) -> list[list[str]]:
    """zip = ["a", "b"], or several such groups."""
    if isinstance(zipped, list) and zipped and all(isinstance(key, str) for key in zipped):
        return [zipped]
    if isinstance(zipped, list) and all(
        isinstance(group, list) and all(isinstance(key, str) for key in group) for group in zipped
    ):
        return zipped
    raise ExperimentError(
        f'zip={zipped!r}: name the keys whose lists go together, like ["sampled", "tolerated"]'
    )


def _is_axis(key: str, value: object) -> bool:
    """Whether it is a list of values, not a schedule of learning rates, itself a list of pairs."""
    if not isinstance(value, list):
        return False
    pairs = all(isinstance(item, list) and len(item) == 2 for item in value)
    schedule = key == "client_lr" and pairs and not any(isinstance(item[0], list) for item in value)
    return not (schedule and value)


def _check(values: Mapping[str, Any], axes: Mapping[str, Any], zipped: list[list[str]]) -> None:
    for key in values:
        if key not in Experiment.model_fields:
            raise ExperimentError(unknown("key", key, ["base", "zip", *Experiment.model_fields]))
    for key, items in axes.items():
        if not items:
            raise ExperimentError(f"{key}=[]: an axis needs at least one value")
    together = [key for group in zipped for key in group]
    for key in together:
        if key not in axes:
            raise ExperimentError(f"zip names {key!r}, which is no list: the lists are {[*axes]}")
        if together.count(key) > 1:
            raise ExperimentError(f"zip names {key!r} twice")
    for group in zipped:
        lengths = {key: len(axes[key]) for key in group}
        if len(set(lengths.values())) > 1:
            raise ExperimentError(f"zip: the lists must have the same length, they have {lengths}")


def _points(axes: Mapping[str, list[Any]], zipped: list[list[str]]) -> Iterable[dict[str, Any]]:
    """Every combination, in the order of the keys; a zipped group stands where its first does."""
    groups: list[list[str]] = []
    for key in axes:
        group = next((group for group in zipped if key in group), [key])
        if group not in groups:
            groups.append(group)
    steps = (
        [{key: axes[key][place] for key in group} for place in range(len(axes[group[0]]))]
        for group in groups
    )
    for parts in itertools.product(*steps):
        yield {key: value for part in parts for key, value in part.items()}


def _names(points: Sequence[Mapping[str, Any]]) -> list[str]:
    """The folder of each run: what it has of its own, with a checksum where that is not all."""
    plain = [
        ",".join(f"{key}={_plain(value)}" for key, value in point.items()) or "run"
        for point in points
    ]
    taken = Counter(name.casefold() for name in plain)  # on some disks, a and A are one file
    return [
        name if taken[name.casefold()] == 1 and len(name) <= LONGEST else _marked(name, point)
        for name, point in zip(plain, points, strict=True)
    ]


def _marked(name: str, point: Mapping[str, Any]) -> str:
    exact = json.dumps(point, sort_keys=True).encode()
    return f"{name[:LONGEST]}-{hashlib.blake2b(exact, digest_size=4).hexdigest()}"


def _plain(value: object) -> str:
    """Text for a file's name, also in a shell."""
    return re.sub(r"[^A-Za-z0-9._+-]+", "-", str(value)).rstrip("-")
