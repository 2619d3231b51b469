"""What an attack sends in a round, and the checks of what its stages return."""

from collections.abc import Callable, Iterable, Iterator
from itertools import repeat
from typing import Any, NamedTuple, cast

from torch import Tensor

from fedro.attacks.dispersion import RowNumbers
from fedro.common.user_code import UserCode

Writer = Callable[[Tensor, RowNumbers], object]  # writes one message into each of these rows


class Forged(NamedTuple):
    """What the Byzantine clients send in a round.

    Attributes:
        rows: The messages: one vector (width,) that all of them send; an iterable with one vector
            for each, of which a vector is valid until the next one is asked for; a function
            ``write(updates, rows)`` that writes them; or None, if they send what they trained.
        model: If not None, the attackers have taken over the server and this is its new model.
        name: Which attack it was, if the attack chose among several.

    Example:
        >>> import numpy as np, torch
        >>> updates = torch.zeros(3, 2)
        >>> Forged(torch.ones(2)).write(updates, np.array([0, 2]))
        >>> updates[:, 0].tolist()
        [1.0, 0.0, 1.0]
    """

    rows: Tensor | Iterable[Tensor] | Writer | None = None
    model: Tensor | None = None
    name: str | None = None

    def write(self, updates: Tensor, rows: RowNumbers) -> None:
        """Write the messages into the matrix of updates.

        Args:
            updates: Matrix of updates (n̂, width), modified in place.
            rows: Numbers of the Byzantine clients' rows.

        Raises:
            ValueError: The attack made more or fewer messages than there are rows, or one of
                another width.
        """
        if self.rows is None:
            return
        if callable(self.rows):
            self.rows(updates, rows)
            return
        messages = repeat(self.rows) if isinstance(self.rows, Tensor) else self.rows
        for message, row in zip(messages, rows, strict=False):  # messages first: they are counted
            updates[int(row)] = message


def rows_of(result: Any) -> Any:
    """Return the messages in what a stage returned: a `Forged`, or the messages themselves."""
    return result.rows if isinstance(result, Forged) else result


def guard_messages(result: Any, guard: UserCode) -> Any:
    """Return what a stage returned, so that messages made later are made in its context."""
    rows = rows_of(result)
    if rows is None or isinstance(rows, Tensor):
        return result
    guarded = guard.wrap(rows) if callable(rows) else guard.iterate(rows)
    return result._replace(rows=guarded) if isinstance(result, Forged) else guarded


def add_stage(sent: Forged, result: Any, stage: str, count: int, width: int) -> Forged:
    """Return what is sent after a stage; whatever the stage leaves open stays as it was."""
    new = result if isinstance(result, Forged) else Forged(result)
    model = sent.model if new.model is None else new.model
    if new.rows is None:
        return Forged(sent.rows, model, new.name or sent.name)
    return Forged(check_messages(new.rows, stage, count, width), model, new.name)


def check_messages(
    rows: Any, stage: str, count: int, width: int
) -> Tensor | Iterable[Tensor] | Writer:
    """Return the messages if they have the right shape: one for all, or one for each."""
    if callable(rows):
        return cast(Writer, rows)
    if not isinstance(rows, Tensor):
        return _counted(rows, stage, count, width)
    if rows.shape == (count, width):
        return rows.unbind()
    if rows.shape != (width,):
        raise ValueError(
            f"{stage} sends shape {tuple(rows.shape)}: need ({width},), the same for all, "
            f"or ({count}, {width}), one message for each Byzantine client"
        )
    return rows


def _counted(messages: Iterable[Any], stage: str, count: int, width: int) -> Iterator[Tensor]:
    """Pass on one message for each Byzantine client; raise when there are more or fewer."""
    problem = ValueError(
        f"{stage} must send {count} tensors of shape ({width},), one for each Byzantine client"
    )
    given = 0
    for message in messages:
        given += 1
        if getattr(message, "shape", None) != (width,) or given > count:
            raise problem
        yield message
    if given < count:
        raise problem
