"""One experiment: a TOML file, or ``Experiment(dataset="digits", …)`` in Python.

>>> Experiment(rounds=0)
Traceback (most recent call last):
fedro.simulation.experiment.ExperimentError: rounds=0: Input should be greater than or equal to 1
"""

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from fedro.common.text import markdown_table
from fedro.server.settings import Count, TrainingSettings, key

NotNegative = Annotated[float, Field(ge=0, le=1e30, allow_inf_nan=False, strict=True)]


class ExperimentError(ValueError):
    """An experiment that cannot be run, and the keys that are the reason."""


class Experiment(TrainingSettings):
    """What is trained, on what, by whom, under which attack, with which defense."""

    error = ExperimentError

    dataset: str = key("digits", "digits, femnist, cifar10, synthetic, folder, or your own")
    partition: str | None = key(None, "owner, iid, dirichlet(alpha=…), shards; the data's own")
    model: str | None = key(None, "mlp(hidden=32), my_module:Net; the one that goes with the data")
    attack: str = key("none", "what they do, like alie or sign_flip | takeover")
    root: Count | str | None = key(
        None, "the server's own examples, for fltrust and monna: how many to draw, or a data set"
    )
    batch_size: Count = key(32, "examples in a step, drawn with replacement")
    momentum: Annotated[float, Field(ge=0, lt=1, strict=True)] = key(
        0.0, "of the clients' steps in a round"
    )
    l2: NotNegative = key(0.0, "weight decay of the clients' steps")
    output: Literal["last", "random"] = key(
        "last", "the final model, or a uniformly random iterate as in the paper"
    )
    device: str = key("auto", "cpu, cuda; auto: cuda where there is one")
    engine: Literal["auto", "workers", "batched", "inline", "flower"] = key(
        "auto", "how clients are computed: auto depends on the model; flower: on Flower and Ray"
    )
    workers: Count | None = key(
        None, "processes of the engines `workers` and `flower`; as many as cores"
    )
    precision: Literal["float32", "bfloat16"] = key(
        "float32", "of the clients' forward and backward passes"
    )

    def replace(self, **changes: Any) -> "Experiment":
        """The same with other values, checked anew."""
        return Experiment(**{**self.as_dict(), **changes})


def as_markdown() -> str:
    """The table of keys, for documents."""
    rows = [
        (f"`{name}`", "" if field.default is None else f"`{field.default}`", str(field.description))
        for name, field in Experiment.model_fields.items()
    ]
    return markdown_table(("key", "default", "meaning"), rows)


def read_experiment(path: Path | str, changes: Sequence[str] = ()) -> Experiment:
    """From a TOML file, with ``key=value`` changes; relative paths inside are as seen from here."""
    values, file = read_toml(path)
    try:
        return Experiment(**{**values, **parse_changes(changes)})
    except ExperimentError as error:
        raise ExperimentError(f"{file}: {error}") from None


def read_toml(path: Path | str) -> tuple[dict[str, Any], Path]:
    """The values in a TOML file or a built-in experiment, and the file."""
    file = find_config(path)
    try:
        return tomllib.loads(file.read_text(encoding="utf-8")), file
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ExperimentError(f"{file} is not TOML: {error}") from None


BUILT_IN = Path(__file__).parent / "configs"


def find_config(path: Path | str) -> Path:
    """A file, or the name of a built-in experiment like `demo`."""
    path = Path(path)
    if path.is_file():
        return path
    names = sorted(found.stem for found in BUILT_IN.glob("*.toml"))
    if path.suffix != ".toml" and str(path) in names:
        return BUILT_IN / f"{path}.toml"
    raise ExperimentError(
        f"{path}: there is no such file; give a TOML file, or one of the built-in experiments "
        f"{', '.join(names)}"
    )


def parse_changes(changes: Sequence[str]) -> dict[str, Any]:
    """``["rounds=100", "attack=alie"]`` as values; quotes around a text may be left out."""
    return dict(parse_change(text) for text in changes)


def parse_change(text: str) -> tuple[str, Any]:
    """One ``key=value``."""
    key, equals, value = text.partition("=")
    key, value = key.strip(), value.strip()
    if not equals or not key:
        raise ExperimentError(f"cannot read the change {text!r}: write key=value, like rounds=100")
    try:
        return key, tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return key, value
