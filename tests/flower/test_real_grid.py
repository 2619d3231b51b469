"""With Flower's own grid and the state of its SuperLink, and threads for nodes."""

import secrets
import threading
from contextlib import contextmanager
from uuid import uuid4

import numpy as np
import pytest
from flwr.common.constant import HEARTBEAT_INTERVAL_INF, NOOP_ACCOUNT_NAME, NOOP_FLWR_AID
from flwr.proto.task_pb2 import Task
from flwr.server.superlink.linkstate import LinkStateFactory
from flwr.server.superlink.linkstate.in_memory_linkstate import RunRecord
from flwr.supercore.constant import FLWR_IN_MEMORY_DB_NAME, NOOP_FEDERATION_ID
from flwr.supercore.object_store import ObjectStoreFactory
from flwr.supercore.run import Run
from flwr.superlink.federation import NoOpFederationManager
from flwr.superlink.grid import InMemoryGrid

from fake_flower import honest, model, raises, sends, silent, small_plan
from fedro.flower import FedRo
from fedro.runs import read


@contextmanager
def federation(behave, nodes=20):
    """A grid whose nodes are online, each of which does as it is told."""
    factory = LinkStateFactory(
        FLWR_IN_MEMORY_DB_NAME, NoOpFederationManager(), ObjectStoreFactory()
    )
    state, run = factory.state(), Run.create_empty(run_id=1)
    run.primary_task_id, run.federation_id = 1, NOOP_FEDERATION_ID
    state.run_ids[1] = RunRecord(run=run)
    state.task_store[1] = Task(task_id=1, run_id=1)
    ids, every = [], HEARTBEAT_INTERVAL_INF
    for _ in range(nodes):
        ids.append(
            state.create_node(NOOP_FLWR_AID, NOOP_ACCOUNT_NAME, secrets.token_bytes(32), every)
        )
        state.acknowledge_node_heartbeat(ids[-1], every)
    over = threading.Event()

    def work():
        while not over.wait(0.01):
            for number, node in enumerate(ids):
                for message in state.get_message_ins(node_id=node, limit=1):
                    reply = behave.get(number, honest(1.0))(message)
                    if reply is not None:
                        reply.metadata.__dict__["_message_id"] = str(uuid4())
                        state.store_message_res(reply)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    grid = InMemoryGrid(state_factory=factory)
    grid.set_run(run)
    try:
        yield grid
    finally:
        over.set()
        thread.join(timeout=10)


@pytest.mark.slow
def test_a_run_with_flowers_own_grid(tmp_path):
    nan = sends(lambda w: {name: value * np.nan for name, value in w.items()})
    with federation({0: nan, 1: raises, 2: silent}) as grid:
        strategy = FedRo(
            plan=small_plan(), folder=tmp_path / "run", evaluate_every=3, max_void_rounds=9
        )
        result = strategy.start(grid, model(), num_rounds=6, timeout=1.0)
    lines = read(tmp_path / "run").rounds
    moved = sum(line["void"] is None for line in lines)
    assert moved >= 3
    assert all(np.allclose(array.numpy(), moved) for array in result.arrays.values())
    assert {line["available"] for line in lines} == {20}
    reasons = {r for line in lines for r in [*line["missing"].values(), *line["rejected"].values()]}
    assert all(r.startswith(("error 2: boom", "did not", "holds NaN")) for r in reasons)
    if moved == 6:
        assert result.evaluate_metrics_clientapp[6]["eval_acc"] == pytest.approx(0.8)
