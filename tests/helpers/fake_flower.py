"""A grid without a network, whose nodes are functions, and a clock that only sleeping moves."""

import os
from itertools import count

os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
os.environ["FLWR_DISABLE_UPDATE_CHECK"] = "1"

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

import fedro
from fedro.flower.messaging import Clock

TaskIdentity.task_id = TaskIdentity.run_id = TaskIdentity.node_id = 1  # as in a server app
FIRST = 2**63 + 1  # node ids that floats cannot tell apart


class Time:
    """A clock that is moved by sleeping."""

    def __init__(self):
        self.time, self.slept = 0.0, []

    def sleep(self, seconds):
        self.slept.append(seconds)
        self.time += seconds
        assert len(self.slept) < 10_000, "a wait without an end"

    @property
    def clock(self):
        return Clock(now=lambda: self.time, sleep=self.sleep)


class FakeGrid(Grid):
    """Nodes FIRST, FIRST + 1, …; `behave[i]` is what the i-th does with a message."""

    def __init__(self, nodes=20, behave=None, default=None):
        self.nodes = [FIRST + i for i in range(nodes)]
        self.behave = {FIRST + i: action for i, action in (behave or {}).items()}
        self.default = default or honest(1.0)
        self.sent, self.replies, self.ids = [], {}, count()
        self.asked = 0

    def set_run(self, run):
        raise NotImplementedError

    @property
    def run(self):
        raise NotImplementedError

    def create_message(self, *args, **options):
        raise NotImplementedError

    def send_and_receive(self, messages, *, timeout=None):
        raise AssertionError("one bad reply would end the run")

    def get_node_ids(self):
        self.asked += 1
        return list(self.nodes)

    def push_messages(self, messages):
        keys = []
        for message in messages:
            key = f"m{next(self.ids)}"
            message.metadata.__dict__["_message_id"] = key
            node = message.metadata.dst_node_id
            assert node in self.nodes, "a message to nobody"
            self.sent.append(message)
            self.replies[key] = self.behave.get(node, self.default)(message)
            keys.append(key)
        return keys

    def pull_messages(self, message_ids):
        messages = []
        for key in message_ids:
            reply = self.replies[key]
            if isinstance(reply, Exception):
                raise reply
            if reply is not None:
                del self.replies[key]
                messages += reply if isinstance(reply, list) else [reply]
        return messages

    def invitations(self, kind="train"):
        """Who was invited, round by round."""
        rounds = {}
        for message in self.sent:
            if message.metadata.message_type == kind:
                number = message.content["config"]["server-round"]
                rounds.setdefault(number, []).append(message.metadata.dst_node_id)
        return rounds


def weights(message):
    return {name: array.numpy().copy() for name, array in message.content["arrays"].items()}


def answer(message, arrays, metrics=None, key="arrays"):
    record = ArrayRecord({name: Array(np.asarray(value)) for name, value in arrays.items()})
    claimed = MetricRecord({"num-examples": 10, **(metrics or {})})
    return Message(RecordDict({key: record, "metrics": claimed}), reply_to=message)


def honest(step, **metrics):
    """Moves every float by a step."""

    def act(message):
        if message.metadata.message_type == "evaluate":
            record = MetricRecord({"num-examples": 10, **(metrics or {"eval_acc": 0.8})})
            return Message(RecordDict({"metrics": record}), reply_to=message)
        arrays = {
            name: value + np.asarray(step, value.dtype) if value.dtype.kind == "f" else value + 1
            for name, value in weights(message).items()
        }
        return answer(message, arrays, {"train_loss": 1.0, **metrics})

    return act


def raises(message):
    return Message(Error(2, "boom\n" * 200), reply_to=message)


def silent(message):
    return None


def sends(change):
    """Sends what `change(arrays)` makes of the weights."""
    return lambda message: answer(message, change(weights(message)))


def model(**more):
    arrays = {"layer.weight": np.zeros((2, 3), np.float32), "layer.bias": np.zeros(2, np.float32)}
    return ArrayRecord({name: Array(value) for name, value in {**arrays, **more}.items()})


def small_plan(**changes):
    """7 of 20 invited, 2 tolerated."""
    return fedro.plan(**{"clients": 20, "byzantine": 2, "rounds": 50, "sampled": 7, **changes})


def invite(arrays, nodes=5):
    """Messages that invite the first nodes to train."""
    record = RecordDict({"arrays": arrays, "config": ConfigRecord({"server-round": 1})})
    return [Message(record, FIRST + i, "train") for i in range(nodes)]
