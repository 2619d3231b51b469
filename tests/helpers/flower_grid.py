"""Flower's own grid for simulations and the state of its SuperLink, with threads for nodes."""

import secrets
import threading
from contextlib import contextmanager
from uuid import uuid4

from flwr.common.constant import HEARTBEAT_INTERVAL_INF, NOOP_ACCOUNT_NAME, NOOP_FLWR_AID
from flwr.proto.task_pb2 import Task
from flwr.server.superlink.linkstate import LinkStateFactory
from flwr.server.superlink.linkstate.in_memory_linkstate import RunRecord
from flwr.supercore.constant import FLWR_IN_MEMORY_DB_NAME, NOOP_FEDERATION_ID
from flwr.supercore.object_store import ObjectStoreFactory
from flwr.supercore.run import Run
from flwr.superlink.federation import NoOpFederationManager
from flwr.superlink.grid import InMemoryGrid

from fake_flower import honest


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
