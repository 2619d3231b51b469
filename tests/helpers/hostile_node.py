"""A node with a registered key that speaks to the SuperLink without Flower's SuperNode."""

import json
from pathlib import Path

import httpx
import numpy as np
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from flwr.app import Array, ArrayRecord, Message, RecordDict
from flwr.app.message import remove_content_from_message
from flwr.common.serde import message_from_proto, message_to_proto
from flwr.proto.fleet_pb2 import (
    ActivateNodeRequest,
    DeactivateNodeRequest,
    PullMessagesRequest,
    PushMessagesRequest,
)
from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest
from flwr.proto.message_pb2 import PushObjectRequest
from flwr.proto.node_pb2 import Node
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree
from flwr.supercore.primitives.asymmetric import public_key_to_bytes
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor


class RepeatedChunk(Array):
    """A small array that says of itself to be one of its parts many times over."""

    __qualname__ = "Array"

    def __init__(self, times, chunk=5 * 2**20):
        super().__init__(np.zeros(chunk - 128, np.uint8))  # with its header one part
        self.__dict__["_times"] = times

    def deflate(self):
        head, body = super().deflate().split(b"\x00", 1)
        kind, children, _ = head.decode().split(" ")
        body = json.dumps({**json.loads(body), "arraychunk_ids": [0] * self._times}).encode()
        return f"{kind} {children} {len(body)}".encode() + b"\x00" + body


class HostileNode:
    """A connection with what a node was given: an address, a CA certificate and its key."""

    def __init__(self, address, ca, key):
        private = load_ssh_private_key(Path(key).read_bytes(), None)
        self.public = public_key_to_bytes(private.public_key())
        signer = NodeAuthHttpInterceptor(private, private.public_key())
        self.client = FleetHttpClient.from_server_address(
            address, False, Path(ca).read_bytes(), [signer]
        )
        request = ActivateNodeRequest(public_key=self.public, heartbeat_interval=30)
        self.node = Node(node_id=self.client.ActivateNode(request).node_id)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        """Leave, so that a SuperNode with this key can come back."""
        self.client.DeactivateNode(DeactivateNodeRequest(node_id=self.node.node_id))
        self.client.close()

    def heartbeat(self):
        self.client.SendNodeHeartbeat(
            SendNodeHeartbeatRequest(node=self.node, heartbeat_interval=30)
        )

    def pull(self):
        """The next message for this node without its content, or None."""
        response = self.client.PullMessages(PullMessagesRequest(node=self.node))
        return message_from_proto(response.messages_list[0]) if response.messages_list else None

    def reply(self, message, arrays):
        """Announce a reply of so many small arrays and send them; the status of the first."""
        return self.send(message, {f"array-{i}": np.full(1, i, np.float32) for i in range(arrays)})

    def send(self, message, arrays, parts=None):
        """Announce a reply with these arrays and send its first parts, by default all."""
        record = ArrayRecord(
            {n: a if isinstance(a, Array) else Array(a) for n, a in arrays.items()}
        )
        reply = Message(RecordDict({"arrays": record}), reply_to=message)
        reply.metadata.__dict__["_message_id"] = reply.object_id
        reply.metadata.__dict__["_src_node_id"] = self.node.node_id
        objects = get_all_nested_objects(reply)
        request = PushMessagesRequest(
            node=self.node,
            messages_list=[message_to_proto(remove_content_from_message(reply))],
            message_object_trees=[get_object_tree(reply)],
        )
        try:
            answer = self.client.PushMessages(request)
            for object_id in list(answer.objects_to_push)[:parts]:
                content = objects[object_id].deflate()
                self.client.PushObject(
                    PushObjectRequest(
                        node=self.node,
                        run_id=message.metadata.run_id,
                        session_id=answer.session_id,
                        object_id=object_id,
                        object_content=content,
                    )
                )
        except httpx.HTTPStatusError as error:
            return error.response.status_code
        return 200
