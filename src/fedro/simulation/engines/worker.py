"""A worker process: reads orders, trains or evaluates, answers. Run by `workers`, not by hand.

Orders and answers are lines of JSON on two pipes; tensors are in shared memory. The process ends
when the orders end, also because the process that gave them was killed.
"""

import json
import sys
import traceback
from typing import Any, TextIO

from fedro.common.subprocesses import serve


def main(orders: TextIO, answers: TextIO) -> None:
    """Get ready from the first line, then answer every further one."""
    greeting = json.loads(orders.readline())
    sys.path[:] = greeting["path"]
    work = None
    for line in orders:
        order = json.loads(line)
        try:
            if work is None:
                work = _prepare(greeting)
            answer: dict[str, Any] = work(order)
        except Exception as error:
            trace = traceback.format_exc(limit=-4)
            answer = {"error": f"{type(error).__name__}: {error}", "trace": trace}
        print(json.dumps({"slot": order["slot"], **answer}), file=answers, flush=True)


def _prepare(greeting: dict[str, Any]) -> Any:
    """The model, the memory, and what to do with an order."""
    import torch

    from fedro.simulation.client import evaluate, local_update
    from fedro.simulation.engines import shared
    from fedro.simulation.engines.portable import built

    torch.set_num_threads(1)
    parts = [shared.Part(name, dtype, tuple(shape)) for name, dtype, shape in greeting["parts"]]
    memory = shared.tensors(greeting["memory"], parts)
    flat, recipe = built(greeting)

    def train(slot: int, row: int, lr: float, seed: int, restraint: float) -> dict[str, Any]:
        torch.manual_seed(seed)
        x, y = memory["x"][slot], memory["y"][slot]
        steps = greeting["steps"]
        used = steps * greeting["batch"]
        x, y = (part[:used].view(steps, -1, *part.shape[1:]) for part in (x, y))
        out = memory["updates"][row, : flat.width]
        return {"loss": local_update(flat, memory["model"], x, y, recipe, lr, out, restraint)}

    def test(slot: int, count: int) -> dict[str, Any]:
        x, y = memory["x"][slot, :count], memory["y"][slot, :count]
        losses, right = evaluate(flat, memory["model"], x, y, recipe)
        memory["losses"][slot, :count] = losses
        memory["right"][slot, :count] = right
        return {}

    return lambda order: train(**order) if "row" in order else test(**order)


if __name__ == "__main__":
    serve(main)
