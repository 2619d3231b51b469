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

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1, strict=True)]
Schedule = list[tuple[Annotated[int, Field(ge=0)], Positive]]


class ExperimentError(ValueError):
    """An experiment that cannot be run, and the keys that are the reason."""


class Experiment(BaseModel):
    """What is trained, on what, by whom, under which attack, with which defense."""

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())

    dataset: str = "digits"
    clients: Count | None = None  # all owners, or 50 parts where data have no owners
    partition: str | None = None  # the data's own, else iid
    model: str | None = None  # the one that goes with the data
    byzantine: Annotated[int, Field(ge=0, strict=True)] = 0
    attack: str = "none"
    rule: str = "nnm | trimmed_mean"
    sampled: Count | None = None  # n̂: from the plan
    tolerated: Annotated[int, Field(ge=0, strict=True)] | None = None  # b̂: from the plan
    confidence: Annotated[float, Field(gt=0, le=1)] = 0.99
    bound: Literal["exact", "shifted", "literal"] = "exact"
    root: Annotated[int, Field(ge=1, strict=True)] | str | None = None  # the server's own examples
    rounds: Count = 100
    local_steps: Count = 10
    batch_size: Count = 32
    client_lr: Positive | str | Schedule = 0.1  # a number, "c/K", or [[from round, lr], …]
    server_lr: Positive = 1.0
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.0
    l2: NotNegative = 0.0
    output: Literal["last", "random"] = "last"
    evaluate_every: Count = 10
    checkpoint_every: Count = 10
    seed: Annotated[int, Field(ge=0, strict=True)] = 0
    device: str = "auto"
    engine: Literal["auto", "workers", "batched", "inline"] = "auto"
    workers: Count | None = None  # processes: as many as there are cores
    precision: Literal["float32", "bfloat16"] = "float32"

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
    path = find_config(path)
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ExperimentError(f"{path} is not TOML: {error}") from None
    try:
        return Experiment(**{**values, **parse_changes(changes)})
    except ExperimentError as error:
        raise ExperimentError(f"{path}: {error}") from None


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
