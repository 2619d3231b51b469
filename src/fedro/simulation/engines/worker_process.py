"""The program of a worker process, which the engine in `workers` starts.

Requests and answers are JSON messages; tensors are in shared memory. The process ends when its
requests end, even if that happens because its parent was killed.
"""

import sys
import traceback
from collections.abc import Callable, Iterator

from fedro.common.subprocesses import Message, serve
from fedro.common.user_code import UserCodeError

Handler = Callable[[Message], Message]


def main(messages: Iterator[Message], send: Callable[[Message], None]) -> None:
    """Read the greeting, then answer every further message."""
    greeting = next(messages, None)
    if greeting is None:
        return
    sys.path[:] = greeting["path"]
    handle: Handler | None = None
    for request in messages:
        try:
            if handle is None:
                handle = _make_handler(greeting)
            answer = handle(request)
        except UserCodeError as error:
            answer = {"user error": error.as_dict()}
        except Exception as error:
            trace = traceback.format_exc(limit=-4)
            answer = {"error": f"{type(error).__name__}: {error}", "trace": trace}
        send({"slot": request["slot"], **answer})


def _make_handler(greeting: Message) -> Handler:
    """Build the model, map the memory, and return the function that handles requests."""
    import torch

    from fedro.simulation.client import evaluate, local_update
    from fedro.simulation.engines import build_described
    from fedro.simulation.engines.shared_memory import SharedTensor, map_tensors

    torch.set_num_threads(1)
    layout = [SharedTensor(name, dtype, tuple(shape)) for name, dtype, shape in greeting["layout"]]
    memory = map_tensors(greeting["memory"], layout)
    flat, training = build_described(greeting)

    def train(slot: int, row: int, lr: float, seed: int, restraint: float) -> Message:
        torch.manual_seed(seed)
        x, y = memory["x"][slot], memory["y"][slot]
        steps = greeting["steps"]
        used = steps * greeting["batch"]
        x, y = (part[:used].view(steps, -1, *part.shape[1:]) for part in (x, y))
        out = memory["updates"][row, : flat.width]
        return {"loss": local_update(flat, memory["model"], x, y, training, lr, out, restraint)}

    def test(slot: int, count: int) -> Message:
        x, y = memory["x"][slot, :count], memory["y"][slot, :count]
        losses, correct = evaluate(flat, memory["model"], x, y, training)
        memory["losses"][slot, :count] = losses
        memory["correct"][slot, :count] = correct
        return {}

    return lambda request: train(**request) if "row" in request else test(**request)


if __name__ == "__main__":
    serve(main)
