"""The settings that a simulation and a deployment share, and how they are checked."""

import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PlainSerializer,
    PrivateAttr,
    ValidationError,
    WrapValidator,
    field_validator,
    model_validator,
)

from fedro.common.registry import unknown
from fedro.common.shares import is_share, share_of
from fedro.rules import DEFAULT_RULE, Rule
from fedro.server.suspects import DEFAULT_FDR


def _or_share(value: object, check: Callable[[object], int]) -> object:
    """Accept a share like "10%" in place of a number; `TrainingSettings` resolves it."""
    is_fraction = isinstance(value, float) and 0 < value < 1
    if is_fraction or (isinstance(value, str) and not is_share(value)):
        raise ValueError('write a whole number, or a share like "10%"')
    return value if is_share(value) else check(value)


Shareable = (WrapValidator(_or_share), PlainSerializer(lambda value: value))

Positive = Annotated[float, Field(gt=0, le=1e30, allow_inf_nan=False, strict=True)]
Count = Annotated[int, Field(ge=1, strict=True)]
Natural = Annotated[int, Field(ge=0, strict=True)]
Schedule = list[tuple[Annotated[int, Field(ge=0)], Positive]]


def key(default: Any, meaning: str) -> Any:
    """A key with its default and the text that the reference shows for it."""
    return Field(default, description=meaning)


class SettingsError(ValueError):
    """A key that is unknown or a value that is not allowed.

    Attributes:
        keys: The given keys that are the reason, as far as they are known.
    """

    def __init__(self, message: str, keys: Iterable[str] = ()) -> None:
        super().__init__(message)
        self.keys = tuple(keys)


class TrainingSettings(BaseModel):
    """The keys of a run that do not depend on whether its clients are simulated or real."""

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())
    error: ClassVar[type[SettingsError]] = SettingsError  # raised for a value that is not allowed

    clients: Count | None = key(
        None,
        "The number of clients (n). The default is one for each owner of the data, or 10 if the "
        "data have no owners.",
    )
    byzantine: Annotated[Natural, *Shareable] = key(
        0,
        'The number of Byzantine clients (b), or a share of the clients like `"10%"` (rounded up). '
        "Which clients they are is drawn from the seed.",
    )
    rule: str = key(DEFAULT_RULE, "The rule with which the server aggregates the updates.")
    sampled: Annotated[Count | None, *Shareable] = key(
        None,
        "The number of clients sampled in each round (n̂), or a share of the clients (rounded up). "
        "The default comes from the plan for the rule.",
    )
    tolerated: Annotated[Natural | None, *Shareable] = key(
        None,
        "The number of Byzantine clients tolerated among the sampled ones (b̂), or a share of the "
        "sampled ones (rounded up). The default comes from the plan for the rule.",
    )
    confidence: Annotated[float, Field(gt=0, le=1, strict=True)] = key(
        0.99, "The probability with which the plan keeps the whole run free of overruns."
    )
    bound: Literal["exact", "shifted", "literal"] = key(
        "exact",
        "How the plan computes that probability: `exact`, or the paper's bound in its `shifted` or "
        "`literal` reading.",
    )
    exclude: Literal["none", "evidence"] = key(
        "none",
        "`evidence` leaves out copies of other updates, and the updates of clients that are "
        "suspect after the rounds before. The tolerance stays the same.",
    )
    fdr: Annotated[float, Field(gt=0, lt=1, strict=True)] = key(
        DEFAULT_FDR, "The rate of false discoveries at which clients are flagged as suspects."
    )
    rounds: Count = key(100, "The number of rounds (T).")
    local_steps: Count = key(10, "The number of SGD steps that a client takes in a round (K).")
    client_lr: Positive | str | Schedule = key(
        0.1,
        "The client learning rate (γ_c): a number, a number divided by the local steps like "
        '`"1/K"`, or a schedule by round like `[[0, 0.1], [300, 0.02]]`.',
    )
    server_lr: Positive = key(
        1.0, "The server learning rate (γ_s), with which the server applies the aggregate."
    )
    evaluate_every: Count = key(
        10, "The number of rounds between evaluations. The final model is always evaluated."
    )
    checkpoint_every: Count = key(10, "The number of rounds between checkpoints.")
    seed: Natural = key(0, "The seed of all random streams.")
    _shares: dict[str, str] = PrivateAttr(default_factory=dict)  # as given, by key

    def __init__(self, **values: Any) -> None:
        if strange := [name for name in values if name not in type(self).model_fields]:
            message = unknown("key", strange[0], list(type(self).model_fields))
            raise self.error(message, strange[:1])
        try:
            super().__init__(**_resolve_shares(values))
            self._shares = {key: value for key, value in values.items() if is_share(value)}
        except ValidationError as error:
            raise self.error(*first_problem(error, values)) from None
        except ValueError as error:  # about a share
            message = str(error)
            raise self.error(message, [message.partition("=")[0]]) from None

    def as_given(self) -> dict[str, Any]:
        """The keys that are set, as TOML values; shares of the clients are still shares."""
        return {**self.as_dict(), **self._shares}

    def for_clients(self, clients: int) -> Self:
        """The settings for this many clients, in which no number of clients is a share.

        Shares are resolved at once if `clients` is set, so this is for data that have their own
        number of clients. Without shares, the settings are returned as they are.
        """
        shares = (self.byzantine, self.sampled, self.tolerated)
        if not any(map(is_share, shares)):
            return self
        return type(self)(**{**self.as_given(), "clients": clients})

    @field_validator("rule", mode="before")
    @classmethod
    def _rule_as_text(cls, value: object) -> object:
        return str(value) if isinstance(value, Rule) else value

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
    def _fits_together(self) -> "TrainingSettings":
        if self.tolerated is not None and self.sampled is None:
            raise ValueError("tolerated is given without sampled: give both, or leave both out")
        if is_share(self.sampled) or is_share(self.tolerated):
            return self  # checked when the number of clients is known
        if self.sampled is not None and self.clients is not None and self.sampled > self.clients:
            raise ValueError(f"sampled={self.sampled} of clients={self.clients}: too many")
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
        """The keys that are set, as TOML values."""
        return self.model_dump(mode="json", exclude_none=True)


def _resolve_shares(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values with shares of the clients as numbers, where the number of clients is known."""
    resolved, clients = dict(values), values.get("clients")
    if not isinstance(clients, int):
        return resolved
    for name in ("byzantine", "sampled"):
        if is_share(values.get(name)):
            resolved[name] = share_of(name, values[name], clients, of="the clients")
    sampled = resolved.get("sampled")
    if is_share(values.get("tolerated")) and isinstance(sampled, int):
        of = "the sampled clients"
        resolved["tolerated"] = share_of("tolerated", values["tolerated"], sampled, of=of)
    return resolved


def _per_step(text: str) -> bool:
    """Whether the text is like "1/K", with a number above zero."""
    try:
        return text.endswith("/K") and 0 < float(text.removesuffix("/K")) < math.inf
    except ValueError:
        return False


def first_problem(error: ValidationError, values: Mapping[str, Any]) -> tuple[str, list[str]]:
    """The first thing that is wrong: a message, and the given keys that it is about."""
    problem = error.errors()[0]
    reason = problem["msg"].removeprefix("Value error, ")
    if not problem["loc"]:  # several keys, which the reason names
        return reason, _keys_in(reason, values)
    name = str(problem["loc"][0])
    return f"{name}={values.get(name)!r}: {reason}", [name]


def _keys_in(message: str, values: Mapping[str, Any]) -> list[str]:
    """The given keys that a message is about."""
    return [name for name in values if re.search(rf"\b{name}\b", message)]
