"""One experiment: a TOML file, or ``Experiment(dataset="digits", …)`` in Python.

>>> Experiment(rounds=0)
Traceback (most recent call last):
fedro.experiment.ExperimentError: rounds=0: Input should be greater than or equal to 1
"""

import math
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from fedro.registry import unknown
from fedro.wording import markdown_table

Positive = Annotated[float, Field(gt=0, le=1e30, allow_inf_nan=False, strict=True)]
NotNegative = Annotated[float, Field(ge=0, le=1e30, allow_inf_nan=False, strict=True)]
Count = Annotated[int, Field(ge=1, strict=True)]
Natural = Annotated[int, Field(ge=0, strict=True)]
Schedule = list[tuple[Annotated[int, Field(ge=0)], Positive]]


class ExperimentError(ValueError):
    """An experiment that cannot be run, and the keys that are the reason."""


def key(default: Any, meaning: str) -> Any:
    """A key of the experiment."""
    return Field(default, description=meaning)


class Experiment(BaseModel):
    """What is trained, on what, by whom, under which attack, with which defense."""

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())

    dataset: str = key("digits", "digits, femnist, cifar10, synthetic, folder, or your own")
    clients: Count | None = key(None, "n; all owners, or 10 parts where data have no owners")
    partition: str | None = key(None, "owner, iid, dirichlet(alpha=…), shards; the data's own")
    model: str | None = key(None, "mlp(hidden=32), my_module:Net; the one that goes with the data")
    byzantine: Natural = key(0, "b, the number of bad clients; who they are is drawn from the seed")
    attack: str = key("none", "what they do, like alie or sign_flip | takeover")
    rule: str = key("nnm | trimmed_mean", "what the server aggregates with")
    sampled: Count | None = key(
        None, "n̂, clients invited each round; from the plan (10 if none is bad)"
    )
    tolerated: Natural | None = key(None, "b̂, bad ones among them; from the plan")
    confidence: Annotated[float, Field(gt=0, le=1, strict=True)] = key(0.99, "wanted by the plan")
    bound: Literal["exact", "shifted", "literal"] = key("exact", "how the plan counts")
    root: Count | str | None = key(
        None, "the server's own examples, for fltrust and monna: how many to draw, or a data set"
    )
    rounds: Count = key(100, "T")
    local_steps: Count = key(10, "K, steps of SGD by each client in a round")
    batch_size: Count = key(32, "examples in a step, drawn with replacement")
    client_lr: Positive | str | Schedule = key(
        0.1, 'γ_c: a number, "c/K", or by round: [[0, 0.1], [300, 0.02]]'
    )
    server_lr: Positive = key(1.0, "γ_s")
    momentum: Annotated[float, Field(ge=0, lt=1, strict=True)] = key(
        0.0, "of the clients' steps in a round"
    )
    l2: NotNegative = key(0.0, "weight decay of the clients' steps")
    output: Literal["last", "random"] = key(
        "last", "the final model, or a uniformly random iterate as in the paper"
    )
    evaluate_every: Count = key(10, "rounds between evaluations; the last is always evaluated")
    checkpoint_every: Count = key(10, "rounds between checkpoints")
    seed: Natural = key(0, "of every draw")
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

    def __init__(self, **values: Any) -> None:
        if strange := [key for key in values if key not in type(self).model_fields]:
            raise ExperimentError(unknown("key", strange[0], list(type(self).model_fields)))
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise ExperimentError(explain(error, values)) from None

    @field_validator("client_lr")
    @classmethod
    def _readable_lr(cls, value: float | str | Schedule) -> float | str | Schedule:
        if isinstance(value, str) and not _per_step(value):
            raise ValueError('write a number, a text like "1/K", or [[0, 0.1], [300, 0.02]]')
        if isinstance(value, list):
            starts = [start for start, _ in value]
            if not starts or starts[0] != 0 or starts != sorted(set(starts)):
                raise ValueError("the schedule's rounds must begin with 0 and increase")
        return value

    @model_validator(mode="after")
    def _fits_together(self) -> "Experiment":
        if self.sampled is not None and self.clients is not None and self.sampled > self.clients:
            raise ValueError(f"sampled={self.sampled} of clients={self.clients}: too many")
        if self.tolerated is not None and self.sampled is None:
            raise ValueError("tolerated is given without sampled: give both, or leave both out")
        if 2 * (self.tolerated or 0) >= (self.sampled or math.inf):
            raise ValueError(
                f"tolerated={self.tolerated} of sampled={self.sampled}: need 2·tolerated < sampled"
            )
        return self

    def lr(self, round: int) -> float:
        """The clients' learning rate γ_c in a round."""
        rate = self.client_lr
        if isinstance(rate, str):
            return float(rate.removesuffix("/K")) / self.local_steps
        if isinstance(rate, list):
            return next(value for start, value in reversed(rate) if start <= round)
        return rate

    def as_dict(self) -> dict[str, Any]:
        """The keys that are set, as TOML knows them."""
        return self.model_dump(mode="json", exclude_none=True)

    def replace(self, **changes: Any) -> "Experiment":
        """The same with other values, checked anew."""
        return Experiment(**{**self.as_dict(), **changes})


def _per_step(text: str) -> bool:
    """Whether it is like "1/K", with a number above zero."""
    try:
        return text.endswith("/K") and 0 < float(text.removesuffix("/K")) < math.inf
    except ValueError:
        return False


def as_markdown() -> str:
    """The table of keys, for documents."""
    rows = [
        (f"`{name}`", "" if field.default is None else f"`{field.default}`", str(field.description))
        for name, field in Experiment.model_fields.items()
    ]
    return markdown_table(("key", "default", "meaning"), rows)


def explain(error: ValidationError, values: Mapping[str, Any]) -> str:
    """The first thing that is wrong: the key, what was given, what is allowed."""
    problem = error.errors()[0]
    reason = problem["msg"].removeprefix("Value error, ")
    if not problem["loc"]:
        return reason
    key = str(problem["loc"][0])
    return f"{key}={values.get(key)!r}: {reason}"


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
