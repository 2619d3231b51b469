"""Check what a stage returned, and join it with what the stages before said."""

from collections.abc import Iterable, Iterator
from typing import Any, cast

from torch import Tensor

from fedro.attacks.view import Forged, Writer


def rows_of(result: Any) -> Any:
    """The messages of what a stage returned: a `Forged`, or the messages themselves."""
    return result.rows if isinstance(result, Forged) else result


def joined(sent: Forged, result: Any, who: str, count: int, width: int) -> Forged:
    """What is sent after a stage: what it leaves open stays as it was."""
    new = result if isinstance(result, Forged) else Forged(result)
    model = sent.model if new.model is None else new.model
    if new.rows is None:
        return Forged(sent.rows, model, new.name or sent.name)
    return Forged(checked(new.rows, who, count, width), model, new.name)


def checked(rows: Any, who: str, count: int, width: int) -> Tensor | Iterable[Tensor] | Writer:
    """The messages, if they have the right shape: one for all, or one for each."""
    if callable(rows):
        return cast(Writer, rows)
    if not isinstance(rows, Tensor):
        return counted(rows, who, count, width)
    if rows.shape == (count, width):
        return rows.unbind()
    if rows.shape != (width,):
        raise ValueError(
            f"{who} sends shape {tuple(rows.shape)}: need ({width},), the same for all, "
            f"or ({count}, {width}), one message for each bad client"
        )
    return rows


def counted(messages: Iterable[Any], who: str, count: int, width: int) -> Iterator[Tensor]:
    """Hand on one message for each bad client; an error when there are more or fewer."""
    given = 0
    for message in messages:
        given += 1
        if getattr(message, "shape", None) != (width,) or given > count:
            raise _wrong(who, count, width)
        yield message
    if given < count:
        raise _wrong(who, count, width)


def _wrong(who: str, count: int, width: int) -> ValueError:
    return ValueError(f"{who} must send {count} tensors of shape ({width},), one for each client")
