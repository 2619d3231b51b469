"""The flat form: a model as one array instead of hundreds.

Flower stores and sends each array of a model as objects of their own. With hundreds of arrays, a
SuperLink is busy with thousands of small requests in each round, and loses some of them. In the
flat form the model is one array of all floating-point numbers, and a second one with the bytes of
the other arrays, if there are any. The config record says which part belongs to which array.

`flat_arrays` translates at the clients. This module needs NumPy and Flower only.
"""

import json
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from numpy.typing import NDArray

FLAT, KEPT = "fedro.flat", "fedro.kept"  # names of the two arrays
FORM_KEY = "fedro-flat-form"  # in the config record


class Slot(NamedTuple):
    """An array of the model."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def bytes(self) -> int:
        """The bytes of its numbers."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


class FlatForm(NamedTuple):
    """Which part of the flat form belongs to which array.

    Attributes:
        names: The names of all arrays, in the model's own order.
        floats: The arrays of the first array, one after the other.
        kept: The arrays whose bytes are in the second one.
    """

    names: Sequence[str]
    floats: Sequence[Slot]
    kept: Sequence[Slot]

    def to_text(self) -> str:
        """This form as text for the config record."""
        return json.dumps({"names": list(self.names), "floats": self.floats, "kept": self.kept})

    @classmethod
    def from_text(cls, text: str) -> "FlatForm":
        """The form that a server has sent."""
        form: dict[str, Any] = json.loads(text)
        floats, kept = (
            [Slot(name, dtype, tuple(shape)) for name, dtype, shape in form[key]]
            for key in ("floats", "kept")
        )
        return cls(form["names"], floats, kept)

    def record(self, vector: NDArray[np.floating], kept: Sequence[NDArray[Any]]) -> ArrayRecord:
        """The flat form of a model, from its vector and its other arrays."""
        arrays = {FLAT: Array(vector)}
        if self.kept:
            data = b"".join(np.ascontiguousarray(array).tobytes() for array in kept)
            arrays[KEPT] = Array(np.frombuffer(data, np.uint8))
        return ArrayRecord(arrays)

    def unpack(self, record: ArrayRecord) -> ArrayRecord:
        """The named arrays of a model in its flat form."""
        numbers, start = record[FLAT].numpy(), 0
        arrays: dict[str, NDArray[Any]] = {}
        for name, dtype, shape in self.floats:
            end = start + math.prod(shape)
            arrays[name] = numbers[start:end].reshape(shape).astype(dtype)
            start = end
        data, start = record[KEPT].numpy().tobytes() if self.kept else b"", 0
        for slot in self.kept:
            part = data[start : start + slot.bytes]
            arrays[slot.name] = np.frombuffer(part, slot.dtype).reshape(slot.shape)
            start += slot.bytes
        return ArrayRecord({name: Array(arrays[name]) for name in self.names})

    def pack(self, record: ArrayRecord) -> ArrayRecord:
        """The flat form of a client's new model. Only its floating-point numbers are sent."""
        dtype = np.result_type(np.float32, *(slot.dtype for slot in self.floats))
        parts = [record[slot.name].numpy().ravel().astype(dtype) for slot in self.floats]
        return ArrayRecord({FLAT: Array(np.concatenate(parts))})


def flat_arrays(
    message: Message, context: Context, call_next: Callable[[Message, Context], Message]
) -> Message:
    """A Flower mod for client apps: the app sees named arrays, the network the flat form.

    Use it if the server has ``FedRo(flat=True)``. If the server sends named arrays, the mod does
    nothing, so a client app can always have it.

    Args:
        message: The server's message.
        context: The client's context.
        call_next: The client app.

    Returns:
        The reply, with a model in its flat form. A reply whose arrays are not those of the server's
        model stays as it is, and the server will say what is wrong with it.

    Example:
        >>> from flwr.clientapp import ClientApp
        >>> app = ClientApp(mods=[flat_arrays])
    """
    text = next((r[FORM_KEY] for r in configs(message) if FORM_KEY in r), None)
    if not isinstance(text, str):
        return call_next(message, context)
    form = FlatForm.from_text(text)
    replace_records(message, lambda r: form.unpack(r) if FLAT in r else r)
    reply = call_next(message, context)
    wanted = {slot.name for slot in form.floats}
    if reply.has_content():
        replace_records(reply, lambda r: form.pack(r) if wanted <= r.keys() else r)
    return reply


def configs(message: Message) -> list[ConfigRecord]:
    """The config records of a message."""
    return list(message.content.config_records.values()) if message.has_content() else []


def replace_records(message: Message, change: Callable[[ArrayRecord], ArrayRecord]) -> None:
    """Give a message new content with other array records. Other messages may share the old one."""
    changed = {name: change(record) for name, record in message.content.array_records.items()}
    message.content = RecordDict({**message.content, **changed})
