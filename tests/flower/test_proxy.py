"""The proxy in front of a SuperLink: what reaches a server behind it, and what does not."""

import http.client
import re
import shutil
import socket
import ssl
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from flwr.supercore.protobuf.translation import PROTOBUF_REQUEST_TYPES
from flwr.supernode import fleet_http_client

from flower_app import APP
from flower_environment import NGINX, free_ports, until

MISSING = [name for name in ("openssl", "ps") if shutil.which(name) is None]
MISSING += [] if NGINX else ["nginx"]
pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"the proxy needs {', '.join(MISSING)}")
DEPLOY = APP / "deploy"
ALLOWED = re.findall(r"location = (/v1/fleet/\S+) ", (DEPLOY / "fleet.conf.template").read_text())
# With SuperNode authentication, the SuperLink refuses these two itself.
USELESS = {"/v1/fleet/register-node", "/v1/fleet/unregister-node"}
PATHS = {path for _, path in PROTOBUF_REQUEST_TYPES}
OTHERS = ["/", "/health", "/docs", "/openapi.json", "/v1", "/v1/fleet", "/v1/fleet/"]
FORBIDDEN = [*sorted(PATHS - set(ALLOWED)), *OTHERS, "/v1/runtime/responses"]
CONTROL = "/v1/control/register-node"


class Superlink(ThreadingHTTPServer):
    """A server that remembers what reaches it; a request says which status it wants."""

    daemon_threads = True

    def __init__(self, keys):
        super().__init__(("127.0.0.1", 0), Handler)
        self.seen, self.at_once, self.most_at_once = [], 0, 0
        self.lock = threading.Lock()
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(keys / "link.crt", keys / "link.key")
        self.socket = tls.wrap_socket(self.socket, server_side=True)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        server = self.server
        with server.lock:
            server.at_once += 1
            server.most_at_once = max(server.most_at_once, server.at_once)
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        time.sleep(float(self.headers.get("takes", 0)))
        with server.lock:
            server.at_once -= 1
            server.seen.append((self.path, len(body), dict(self.headers)))
        self.send_response(int(self.headers.get("answer", 200)))
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_GET = do_PUT = do_DELETE = do_HEAD = do_OPTIONS = do_POST  # noqa: N815

    def log_message(self, *_):
        pass


class Proxy:
    """nginx with the files that up.sh writes."""

    def __init__(self, folder):
        self.folder, self.keys, self.port = folder, folder / "keys", free_ports(1)
        subprocess.run([DEPLOY / "certificates.sh", self.keys, "localhost"], check=True)
        self.superlink = Superlink(self.keys)
        threading.Thread(target=self.superlink.serve_forever, daemon=True).start()
        self.tls = ssl.create_default_context(cafile=self.keys / "ca.crt")
        write = 'source "$0/common.sh"; write_proxy_config "$0/fleet.conf.template" "$@"'
        there = f"127.0.0.1:{self.superlink.server_port}"
        words = [DEPLOY, f"127.0.0.1:{self.port}", there, self.keys, folder / "proxy"]
        subprocess.run(["bash", "-ec", write, *words], check=True)
        command = [NGINX, "-p", folder / "proxy", "-e", "stderr", "-c", "nginx.conf"]
        with (folder / "log").open("w") as log:
            self.process = subprocess.Popen(command, stderr=log)

    def answers(self):
        with closing(socket.socket()) as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def call(self, path, body=b"", method="POST", **headers):
        """The status of a request that http.client writes."""
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        with closing(
            http.client.HTTPSConnection("localhost", self.port, timeout=60, context=self.tls)
        ) as connection:
            connection.request(method, path, body, names)
            return connection.getresponse().status

    def raw(self, text):
        """All answers to bytes that no client would write."""
        with (
            socket.create_connection(("127.0.0.1", self.port), timeout=20) as plain,
            self.tls.wrap_socket(plain, server_hostname="localhost") as connection,
        ):
            connection.sendall(text.encode("latin-1").replace(b"\n", b"\r\n"))
            answer = b""
            while data := connection.recv(65536):
                answer += data
        return [int(code) for code in re.findall(rb"^HTTP/1\.[01] (\d+)", answer, re.MULTILINE)]

    def paths(self):
        return [path for path, _, _ in self.superlink.seen]


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    proxy = Proxy(tmp_path_factory.mktemp("proxy"))
    try:
        until("the proxy", 20, proxy.answers)
        yield proxy
    finally:
        proxy.process.terminate()
        proxy.process.wait(20)
        proxy.superlink.shutdown()
        proxy.superlink.server_close()


@pytest.fixture
def proxy(shared):
    shared.superlink.seen.clear()
    shared.superlink.most_at_once = 0
    return shared


def test_the_paths_that_pass_are_those_that_a_supernode_with_a_key_uses():
    source = Path(fleet_http_client.__file__).read_text()
    assert set(ALLOWED) == set(re.findall(r'"(/v1/fleet/[a-z-]+)"', source)) - USELESS
    assert len(ALLOWED) == len(set(ALLOWED)) == 10


def test_calls_of_supernodes_pass(proxy):
    assert {proxy.call(path, b"x", flwr_public_key="k") for path in ALLOWED} == {200}
    assert proxy.paths() == ALLOWED
    headers = proxy.superlink.seen[0][2]
    assert headers["flwr-public-key"] == "k"
    assert headers["X-Forwarded-For"] == "127.0.0.1"


def test_a_node_cannot_write_where_it_comes_from(proxy):
    assert proxy.call(ALLOWED[0], X_Forwarded_For="10.1.2.3") == 200
    assert proxy.superlink.seen[0][2]["X-Forwarded-For"] == "127.0.0.1"


def test_all_other_paths_of_flower_are_refused(proxy):
    assert len(FORBIDDEN) > 60  # Flower 1.41 has 70 or so
    assert {CONTROL, "/v1/control/start-run", "/v1/control/unregister-node"} < set(FORBIDDEN)
    for method in ("POST", "GET", "PUT", "HEAD"):
        answers = {proxy.call(path, method=method) for path in FORBIDDEN}
        assert answers == ({404} if method == "POST" else {405})
    assert proxy.paths() == []


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "HEAD", "OPTIONS", "CONNECT", "TRACE"])
def test_only_post_passes(proxy, method):
    assert proxy.call(ALLOWED[0], method=method) in (400, 405)
    assert proxy.paths() == []


TRICKS = [
    "/v1/fleet/../control/register-node",
    "/v1/fleet/%2e%2e/control/register-node",
    "/v1/fleet/%2E%2E%2Fcontrol/register-node",
    "/v1/fleet/..%2fcontrol/register-node",
    "/v1/fleet/activate-node/../../control/register-node",
    "/v1/fleet/activate-node/..;/../control/register-node",
    "/v1/fleet/activate-node%00/v1/control/register-node",
    "/v1/fleet/activate-node?/../../control/register-node",
    "/v1/fleet/activate-node#/../../control/register-node",
    "/v1/fleet/activate-node;/v1/control/register-node",
    "/v1/fleet/activate-node\\..\\..\\control\\register-node",
    "/v1/fleet/activate-node/",
    "/v1/fleet/activate-node%2f",
    "/v1/fleet/activate-node%20",
    "/v1/fleet/activate%2dnode",
    "/v1/fleet//activate-node",
    "//v1/fleet/activate-node",
    "/./v1/fleet/activate-node",
    "/v1/control/../fleet/activate-node",
    "//v1/control/register-node",
    "/v1//control//register-node",
    "/V1/CONTROL/REGISTER-NODE",
    "/V1/Fleet/Activate-Node",
    "/%76%31/control/register-node",
    "/v1/control/register-node/",
    "/v1%2fcontrol%2fregister-node",
    "http://localhost/v1/control/register-node",
    "https://127.0.0.1:8001/v1/control/register-node",
    "//localhost/v1/control/register-node",
    "*",
    "v1/control/register-node",
]


@pytest.mark.parametrize("target", TRICKS)
@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_paths_that_are_written_otherwise_are_refused(proxy, target, version):
    headers = "Host: localhost\nConnection: close\nContent-Length: 0\n\n"
    (status,) = proxy.raw(f"POST {target} HTTP/{version}\n{headers}")
    assert status in (400, 404, 405)
    assert proxy.paths() == []


REQUESTS = {
    "a second Host": f"POST {CONTROL} HTTP/1.1\nHost: localhost\nHost: 127.0.0.1\n",
    "an upgrade to websocket": f"GET {CONTROL} HTTP/1.1\nHost: localhost\nUpgrade: websocket\n"
    "Connection: Upgrade\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\nSec-WebSocket-Version: 13\n",
    "an upgrade to HTTP/2": f"POST {CONTROL} HTTP/1.1\nHost: localhost\nUpgrade: h2c\n"
    "Connection: Upgrade, HTTP2-Settings\nHTTP2-Settings: AAMAAABkAAQAAP__\n",
    "HTTP/2 at once": "PRI * HTTP/2.0\n\nSM\n",
    "HTTP/0.9": f"GET {CONTROL}\n",
    "another path in a header": f"POST / HTTP/1.1\nHost: localhost\nX-Original-URL: {CONTROL}\n"
    f"X-Rewrite-URL: {CONTROL}\nX-Forwarded-Prefix: {CONTROL}\n",
    "another method in a header": f"GET {CONTROL} HTTP/1.1\nHost: localhost\n"
    "X-HTTP-Method-Override: POST\n",
    "a tunnel": "CONNECT 127.0.0.1:8001 HTTP/1.1\nHost: 127.0.0.1:8001\n",
}


@pytest.mark.parametrize("name", REQUESTS)
def test_other_ways_in_are_refused(proxy, name):
    statuses = proxy.raw(REQUESTS[name] + "Connection: close\n\n")
    assert all(status in (400, 404, 405) for status in statuses)
    assert statuses or name in ("HTTP/0.9", "HTTP/2 at once")
    assert proxy.paths() == []


INNER = f"POST {CONTROL} HTTP/1.1\nHost: localhost\nContent-Length: 0\nConnection: close\n\n"
LENGTH = f"Content-Length: {len(INNER) + 5}\n"
SMUGGLED = {
    "two lengths": f"Content-Length: 0\nContent-Length: {len(INNER)}\n\n{INNER}",
    "length and chunks": f"{LENGTH}Transfer-Encoding: chunked\n\n0\n\n{INNER}",
    "chunks written otherwise": f"{LENGTH}Transfer-Encoding: xchunked\n\n0\n\n{INNER}",
    "chunks": f"Transfer-Encoding: chunked\n\n0\n\n{INNER}",
    "a pipeline": f"Content-Length: 0\n\n{INNER}",
    "a line in a header": f"X: a\nContent-Length: 0\n b\n\n{INNER}",
}


@pytest.mark.parametrize("name", SMUGGLED)
def test_nothing_can_be_smuggled_in_the_body_of_an_allowed_call(proxy, name):
    proxy.raw(f"POST {ALLOWED[0]} HTTP/1.1\nHost: localhost\n{SMUGGLED[name]}")
    assert CONTROL not in proxy.paths()
    assert set(proxy.paths()) <= {ALLOWED[0]}


def test_the_announcement_of_a_reply_has_a_limit(proxy):
    """10,000 arrays are 20,000 objects, for which the SuperLink locks its database for 10 s."""
    largest_model, hostile = 68 * 663, 68 * 20_000  # ResNet-50 has 330 arrays
    assert proxy.call("/v1/fleet/push-messages", b"x" * largest_model) == 200
    assert proxy.call("/v1/fleet/push-messages", b"x" * hostile) == 413
    assert [size for _, size, _ in proxy.superlink.seen] == [largest_model]


def test_contents_have_a_limit_that_a_part_of_an_array_keeps(proxy):
    part = 5 * 2**20 + 4096  # and the names around it
    assert proxy.call("/v1/fleet/push-object", b"x" * part) == 200
    assert proxy.call("/v1/fleet/push-object", b"x" * 2 * part) == 413
    others = [path for path in ALLOWED if "push" not in path]
    assert {proxy.call(path, b"x" * 20_000) for path in others} == {413}
    assert [size for _, size, _ in proxy.superlink.seen] == [part]


def test_a_chunked_body_has_the_same_limit(proxy):
    chunk = f"{100_000:x}\n{'x' * 100_000}\n"
    text = "POST /v1/fleet/push-messages HTTP/1.1\nHost: localhost\nTransfer-Encoding: chunked\n\n"
    assert proxy.raw(f"{text}{chunk}0\n\n") == [413]
    assert proxy.paths() == []


@pytest.mark.parametrize("status", [500, 502, 504])
def test_errors_of_the_superlink_become_503_which_nodes_try_again(proxy, status):
    assert proxy.call("/v1/fleet/send-node-heartbeat", answer=str(status)) == 503


@pytest.mark.parametrize("status", [401, 403, 404, 409])
def test_what_the_superlink_says_of_a_node_gets_through(proxy, status):
    assert proxy.call("/v1/fleet/pull-messages", answer=str(status)) == status


KEYS = [f"{'a' * 96}{letter * 160}{'b' * 32}" for letter in "xyz"]  # three nodes at one address


def test_one_node_cannot_keep_the_superlink_busy(proxy):
    """Of 60 requests of one node at once ten pass. Other nodes notice nothing."""
    flood = {"takes": "1.5", "flwr_public_key": KEYS[0]}
    with ThreadPoolExecutor(61) as pool:
        many = [pool.submit(proxy.call, "/v1/fleet/pull-messages", **flood) for _ in range(60)]
        until("the flood", 20, lambda: proxy.superlink.at_once >= 10)
        other = proxy.call("/v1/fleet/send-node-heartbeat", flwr_public_key=KEYS[1])
        statuses = [call.result() for call in many]
    assert other == 200
    assert set(statuses) == {200, 503}
    assert proxy.superlink.most_at_once <= 11


def test_many_replies_of_one_node_wait_and_those_of_others_do_not(proxy):
    """A run of small models has two replies a round, and rounds take six seconds."""
    path = "/v1/fleet/push-messages"
    start = time.monotonic()
    assert [proxy.call(path, flwr_public_key=KEYS[1]) for _ in range(2)] == [200, 200]
    assert proxy.call(path, flwr_public_key=KEYS[2]) == 200
    assert time.monotonic() - start >= 2.5  # 3 s between two replies of one node


def test_an_honest_node_with_many_arrays_is_never_refused(proxy):
    """As a SuperNode does it: contents two at a time, beside a heartbeat."""
    headers = {"flwr_public_key": KEYS[2]}
    with ThreadPoolExecutor(2) as contents, ThreadPoolExecutor(1) as heartbeat:
        beats = [
            heartbeat.submit(proxy.call, "/v1/fleet/send-node-heartbeat", **headers)
            for _ in range(50)
        ]
        parts = [
            contents.submit(proxy.call, "/v1/fleet/push-object", b"x" * 1000, **headers)
            for _ in range(663)
        ]
        assert {call.result() for call in beats + parts} == {200}


def test_refused_requests_are_logged_with_the_key_of_the_node(proxy):
    proxy.call(CONTROL, flwr_public_key="who-is-it")
    log = (proxy.folder / "proxy" / "refused.log").read_text().splitlines()
    assert f'"POST {CONTROL} HTTP/1.1" 404' in log[-1]
    assert log[-1].startswith("127.0.0.1 [")
    assert log[-1].endswith("key who-is-it")


def test_plain_http_is_refused(proxy):
    with closing(http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=20)) as plain:
        plain.request("POST", ALLOWED[0])
        assert plain.getresponse().status == 400
    assert proxy.paths() == []
