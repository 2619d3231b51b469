"""What a Flower server does with the replies of a round, without the network: times in ms.

python benchmarks/flower.py [sampled] [parameters]
"""

import sys
import time
from statistics import median

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.supercore.task_identity import TaskIdentity

from fedro.flower.layout import Layout
from fedro.flower.replies import receive_updates
from fedro.rules import parse_rule
from fedro.server import step


def main(sampled: int, parameters: int) -> None:
    TaskIdentity.task_id = TaskIdentity.run_id = TaskIdentity.node_id = 1
    start = ArrayRecord({"w": Array(np.zeros(parameters, np.float32))})
    layout = Layout(start)
    model = layout.vector(start)
    random = np.random.default_rng(0)
    replies = []
    for node in range(sampled):
        arrays = ArrayRecord({"w": Array(random.normal(size=parameters).astype(np.float32))})
        sent = Message(RecordDict({"arrays": start}), node, "train")
        content = RecordDict({"arrays": arrays, "metrics": MetricRecord({"loss": 1.0})})
        replies.append((node, Message(content, reply_to=sent)))
    updates = torch.empty(sampled, layout.width)
    rule, tolerated = parse_rule("nnm | trimmed_mean"), (sampled - 1) // 3
    times: dict[str, list[float]] = {"read and screen": [], "step": [], "pack": [], "x.sum()": []}
    for _ in range(7):
        at = [time.perf_counter()]
        nodes = list(range(sampled))
        _, _, rows = receive_updates(replies, nodes, updates, model, layout, "arrays")
        at.append(time.perf_counter())
        done = step(model, updates, rows, rule, tolerated=tolerated, server_lr=1.0, flat=layout)
        at.append(time.perf_counter())
        layout.record(done.model)
        at.append(time.perf_counter())
        updates.sum()
        at.append(time.perf_counter())
        for name, seconds in zip(times, np.diff(at), strict=True):
            times[name].append(1000 * seconds)
    print(f"n̂ = {sampled}, d = {parameters:,}")
    for name, found in times.items():
        print(f"{name:16} {median(found):8.1f} ms")


if __name__ == "__main__":
    given = [int(text) for text in sys.argv[1:]]
    main(*(given or [27, 2_368_318]))
