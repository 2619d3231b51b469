"""An experiment: a TOML file, or ``Experiment(dataset="digits", …)`` in Python."""

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from fedro.attacks import Attack
from fedro.common.text import markdown_table
from fedro.server.settings import Count, SettingsError, TrainingSettings, key

NotNegative = Annotated[float, Field(ge=0, le=1e30, allow_inf_nan=False, strict=True)]

# The order of the keys in the reference, in tables and in the configuration that a run records.
KEY_GROUPS = {
    "Data and model": ("dataset", "partition", "model"),
    "Clients and attack": ("clients", "byzantine", "attack"),
    "Aggregation": ("rule", "root", "exclude", "fdr"),
    "Plan": ("sampled", "tolerated", "confidence", "bound"),
    "Training": (
        *("rounds", "local_steps", "batch_size", "client_lr", "server_lr"),
        *("momentum", "l2", "precision", "output"),
    ),
    "Evaluation and checkpoints": ("evaluate_every", "checkpoint_every"),
    "Machine": ("seed", "engine", "workers", "device"),
}
KEYS = tuple(name for group in KEY_GROUPS.values() for name in group)


class ExperimentError(SettingsError):
    """An experiment that cannot be run; the message names the keys that are the reason."""


class Experiment(TrainingSettings):
    """The configuration of one simulated run: data, model, clients, attack, rule and training.

    An experiment is immutable and checked when it is created. All keys have defaults; the reference
    of keys explains each of them.

    Args:
        **values: The keys of the experiment. `rule` and `attack` may be text, as in a TOML file, or
            `Rule` and `Attack` objects, which are stored as their text.

    Raises:
        ExperimentError: A key is unknown or its value is not allowed.

    Example:
        >>> experiment = Experiment(dataset="digits", clients=50, byzantine=5, attack="alie")
        >>> experiment.replace(rounds=20).rounds
        20
        >>> Experiment(rounds=0)
        Traceback (most recent call last):
        fedro.simulation.experiment.ExperimentError: rounds=0: Input should be greater than or \
equal to 1
    """

    error = ExperimentError

    dataset: str = key(
        "digits",
        "The data set: `digits`, `femnist`, `cifar10`, `synthetic`, `folder(path=…)`, or your own "
        "function as `my_module:make`.",
    )
    partition: str | None = key(
        None,
        "How the data are divided among the clients: `owner`, `iid`, `dirichlet(alpha=…)` or "
        "`shards(per_client=…)`. The default depends on the data set.",
    )
    model: str | None = key(
        None,
        "The model, such as `mlp(hidden=32)`, or your own class as `my_module:Net`. The default "
        "depends on the data set.",
    )
    attack: str = key(
        "none", "What the Byzantine clients do, such as `alie` or `sign_flip | takeover`."
    )
    root: Count | str | None = key(
        None,
        "Data of the server's own, for the rules `fltrust` and `monna`: the number of examples to "
        "draw from the clients' training data, or a data set.",
    )
    batch_size: Count = key(
        32, "The number of examples in a local step. They are drawn with replacement."
    )
    momentum: Annotated[float, Field(ge=0, lt=1, strict=True)] = key(
        0.0, "The momentum of local training. Every round starts without momentum."
    )
    l2: NotNegative = key(0.0, "The weight decay of local training.")
    output: Literal["last", "random"] = key(
        "last",
        "Which model the run returns: `last` for the final one, or `random` for a uniformly drawn "
        "iterate as in the paper.",
    )
    device: str = key(
        "auto", "The device to train on: `cpu`, `cuda` or `cuda:0`. `auto` uses a GPU if present."
    )
    engine: Literal["auto", "workers", "batched", "inline", "ray"] = key(
        "auto",
        "The engine that trains the clients: `inline`, `batched`, `workers` or `ray`. `auto` "
        "chooses one of the first three by the model and the device.",
    )
    workers: Count | None = key(
        None,
        "The number of processes of the engines `workers` and `ray`. The default is one per core.",
    )
    precision: Literal["float32", "bfloat16"] = key(
        "float32",
        "The precision of forward and backward passes: `float32` or `bfloat16`. Weights and "
        "updates are always float32.",
    )

    @field_validator("attack", mode="before")
    @classmethod
    def _attack_as_text(cls, value: object) -> object:
        return str(value) if isinstance(value, Attack) else value

    def replace(self, **changes: Any) -> "Experiment":
        """A copy with some keys changed, checked like a new experiment."""
        return Experiment(**{**self.as_given(), **changes})

    def as_dict(self) -> dict[str, Any]:
        """The keys that are set, as TOML values, in the order of the reference."""
        values = super().as_dict()
        return {name: values[name] for name in KEYS if name in values}


def as_markdown() -> str:
    """The keys by group as Markdown tables, for the reference."""
    parts = []
    for title, names in KEY_GROUPS.items():
        fields = {name: Experiment.model_fields[name] for name in names}
        rows = [
            (
                f"`{name}`",
                "" if field.default is None else f"`{field.default}`",
                str(field.description),
            )
            for name, field in fields.items()
        ]
        parts += [f"## {title}", markdown_table(("key", "default", "meaning"), rows)]
    return "\n\n".join(parts)


def read_experiment(path: Path | str, changes: Sequence[str] = ()) -> Experiment:
    """Read an experiment from a TOML file.

    Relative paths inside the file are relative to the current folder.

    Args:
        path: The file, or the name of a built-in experiment such as ``"demo"``.
        changes: Texts like ``"rounds=100"``, which replace keys of the file. Errors call them
            ``--set``, as on the command line.

    Returns:
        The experiment.

    Raises:
        ExperimentError: The file does not exist or is not TOML, a key is unknown, a value is not
            allowed, or a rule, an attack, a data set, a partition or a model cannot be made as
            written. The message names the file or the change, and the key.

    Example:
        >>> import fedro
        >>> experiment = fedro.read_experiment("demo", ["rounds=100", "attack=mimic"])
        >>> experiment.attack
        'mimic'
    """
    from fedro.simulation.components import check_components  # which needs `Experiment`

    values, file = read_toml(path)
    changed = parse_changes(changes)
    with naming_the_origin(file, changes):
        experiment = Experiment(**{**values, **changed})
        check_components(experiment)
    return experiment


@contextmanager
def naming_the_origin(file: Path, changes: Sequence[str]) -> Iterator[None]:
    """Begin the message of an `ExperimentError` with the file or the changes that are the reason.

    Args:
        file: The file with all values that are not changed.
        changes: Texts like ``"rounds=100"``.
    """
    texts = {parse_change(text)[0]: text for text in changes}
    try:
        yield
    except ExperimentError as error:
        message = str(error)
        blamed = [key for key in error.keys if key in texts]
        if not blamed:
            message = f"{file}: {message}"
        elif len(blamed) < len(error.keys):
            message = f"{_as_options(blamed, texts)} and {file}: {message}"
        elif len(blamed) == 1 and message.startswith(f"{blamed[0]}="):
            message = f"--set {message}"
        else:
            message = f"{_as_options(blamed, texts)}: {message}"
        raise ExperimentError(message, error.keys) from None


@contextmanager
def naming_the_changes(changes: Sequence[str]) -> Iterator[None]:
    """Begin the message of an error with the changes of the keys that it names, if there are any.

    This is for errors that need the data or the plan, and so do not know where a value is from.
    """
    texts = {parse_change(text)[0]: text for text in changes}
    try:
        yield
    except ValueError as error:
        named = [key for key in texts if re.search(rf"\b{key}=", str(error))]
        if not named:
            raise
        raise ExperimentError(f"{_as_options(named, texts)}: {error}", named) from error


def _as_options(keys: Sequence[str], texts: Mapping[str, str]) -> str:
    return " ".join(f"--set {texts[key]}" for key in keys)


def read_toml(path: Path | str) -> tuple[dict[str, Any], Path]:
    """The values in a TOML file or a built-in experiment, and the file."""
    file = find_config(path)
    try:
        return tomllib.loads(file.read_text(encoding="utf-8")), file
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ExperimentError(f"{file} is not TOML: {error}") from None


BUILT_IN = Path(__file__).parent / "configs"


def find_config(path: Path | str) -> Path:
    """The file of this path, or of the built-in experiment with this name."""
    path = Path(path)
    if path.is_file():
        return path
    names = sorted(file.stem for file in BUILT_IN.glob("*.toml"))
    if path.suffix != ".toml" and str(path) in names:
        return BUILT_IN / f"{path}.toml"
    raise ExperimentError(
        f"{path}: there is no such file; give a TOML file, or one of the built-in experiments "
        f"{', '.join(names)}"
    )


def parse_changes(changes: Sequence[str]) -> dict[str, Any]:
    """The values of ``["rounds=100", "attack=alie"]``; text needs no quotes."""
    return dict(parse_change(text) for text in changes)


def parse_change(text: str) -> tuple[str, Any]:
    """The key and the value of one ``key=value``."""
    key, equals, value = text.partition("=")
    key, value = key.strip(), value.strip()
    if not equals or not key:
        raise ExperimentError(f"cannot read --set {text!r}: write key=value, like --set rounds=100")
    try:
        parsed = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return key, value
    field = Experiment.model_fields.get(key)
    is_name = field is not None and field.annotation is str and isinstance(parsed, float)
    return key, value if is_name else parsed  # the attacks nan and inf are names, not numbers
