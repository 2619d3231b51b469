"""The files in deploy/ without a federation: what scripts do, and whether units are well formed."""

import configparser
import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing, suppress
from types import SimpleNamespace

import httpx
import pytest
import torch
import yaml
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

from fedro.runs import RunFolder, read
from flower_app import APP

DEPLOY = APP / "deploy"
needs_ps = pytest.mark.skipif(shutil.which("ps") is None, reason="down.sh needs ps")
needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")


class FakeFederation:
    """A copy of the scripts under a long path, and programs that only sleep."""

    def __init__(self, folder):
        self.folder = folder / ("a" * 110) / ("b" * 110)
        shutil.copytree(APP / "deploy", self.folder / "deploy")
        self.federation = self.folder / "federation"
        self.federation.mkdir()
        self.processes = []

    def start(self, program, name, body="sleep 300"):
        path = self.folder / program
        path.write_text(f"#!/bin/bash\n{body}\n")
        path.chmod(0o755)
        process = subprocess.Popen([path], start_new_session=True)
        self.processes.append(process)
        (self.federation / f"{name}.pid").write_text(f"{process.pid}\n")
        return process

    def down(self):
        return subprocess.run(
            [self.folder / "deploy" / "down.sh", self.federation],
            env={**os.environ, "COLUMNS": "80"},
            capture_output=True,
            text=True,
        )


@pytest.fixture
def federation(tmp_path):
    federation = FakeFederation(tmp_path)
    yield federation
    for process in federation.processes:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def group_is_alive(group):
    table = subprocess.run(["ps", "-eo", "pgid=,stat="], capture_output=True, text=True).stdout
    rows = [line.split() for line in table.splitlines()]
    return any(int(pgid) == group and not stat.startswith("Z") for pgid, stat in rows)


@needs_ps
def test_processes_under_a_long_path_are_stopped(federation):
    superlink = federation.start("flower-superlink", "superlink")
    proxy = federation.start("nginx: master process", "proxy")
    done = federation.down()
    assert done.returncode == 0, done.stderr
    assert superlink.wait(timeout=5) == proxy.wait(timeout=5) == -signal.SIGTERM
    assert not list(federation.federation.glob("*.pid"))
    assert "have ended" in done.stdout


@needs_ps
def test_children_in_groups_of_their_own_are_stopped_too(federation):
    (federation.folder / "child").write_text("#!/bin/bash\necho $$ > child-pid\nsleep 300\n")
    body = f"cd {federation.federation}\nset -m\nbash {federation.folder}/child &\nwait"
    federation.start("flower-superlink", "superlink", body)
    file = federation.federation / "child-pid"
    end = time.monotonic() + 10
    while not (file.exists() and file.read_text().strip()):
        assert time.monotonic() < end
        time.sleep(0.02)
    assert federation.down().returncode == 0
    assert not group_is_alive(int(file.read_text()))


@needs_ps
def test_a_recorded_process_that_still_runs_is_an_error(federation):
    """Its number may have been taken by another program, which is not to be killed."""
    process = federation.start("something-else", "node-0")
    done = federation.down()
    assert done.returncode == 1
    assert f"Process {process.pid} of {federation.federation}/node-0.pid is still running" in (
        done.stderr
    )
    assert f"kill -KILL {process.pid}" in done.stderr
    assert "delete node-0.pid" in done.stderr
    assert process.poll() is None
    assert (federation.federation / "node-0.pid").exists()
    assert "have ended" not in done.stdout


@needs_ps
def test_a_federation_that_is_down_can_be_taken_down_again(federation):
    (federation.federation / "superlink.pid").write_text("999999999\n")
    assert federation.down().returncode == 0
    assert federation.down().returncode == 0


FLWR = """#!{python}
import json, pathlib, sys
folder = pathlib.Path("{folder}")
with (folder / "calls").open("a") as calls:
    calls.write(json.dumps(sys.argv[1:]) + "\\n")
said = json.loads((folder / "says").read_text())
answer = said.pop(0)
(folder / "says").write_text(json.dumps(said or [answer]))
print(json.dumps(answer) if answer else "no JSON")
"""


class FakeFlwr:
    """A `flwr` whose answers are given, one after another."""

    def __init__(self, folder):
        self.folder = folder
        (folder / "flwr").write_text(FLWR.format(python=sys.executable, folder=folder))
        (folder / "flwr").chmod(0o755)

    def supervise(self, answers, run_config='clients=5 folder="runs/a"', *options):
        (self.folder / "says").write_text(json.dumps(answers))
        (self.folder / "calls").write_text("")
        command = [sys.executable, DEPLOY / "supervise.py", "app", "--run-config", run_config]
        command += ["--wait", "0", "--poll", "0", *options]
        env = {**os.environ, "PATH": f"{self.folder}:{os.environ['PATH']}"}
        return subprocess.run(
            command, env=env, cwd=self.folder, capture_output=True, text=True, timeout=60
        )

    def calls(self):
        return [json.loads(line) for line in (self.folder / "calls").read_text().splitlines()]


def submitted(run):
    return {"success": True, "run-id": run}


def listed(run, status):
    return {"success": True, "runs": [{"run-id": run, "status": status}]}


@pytest.fixture
def flwr(tmp_path):
    return FakeFlwr(tmp_path)


def test_a_run_that_failed_is_resumed_until_it_completes(flwr):
    done = flwr.supervise(
        [
            submitted("1"),
            listed("1", "running"),
            None,  # the SuperLink is away
            listed("1", "finished:failed"),
            None,  # it cannot be submitted yet
            submitted("2"),
            listed("2", "finished:completed"),
        ]
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert [call[0] for call in flwr.calls()] == [
        "run",
        "list",
        "list",
        "list",
        "run",
        "run",
        "list",
    ]
    runs = [call for call in flwr.calls() if call[0] == "run"]
    assert all(call[3] == 'clients=5 folder="runs/a" resume=true' for call in runs)
    assert not (flwr.folder / "supervised-run").exists()


def test_retries_are_bounded(flwr):
    answers = []
    for run in "12345":
        answers += [submitted(run), listed(run, "finished:failed")]
    done = flwr.supervise(answers, 'folder="runs/a"', "--retries", "2")
    assert done.returncode == 1
    assert [call[0] for call in flwr.calls()] == ["run", "list"] * 3
    assert "giving up after 3 failures in a row" in done.stdout


def test_a_run_that_somebody_stopped_stays_stopped(flwr):
    done = flwr.supervise([submitted("1"), listed("1", "finished:stopped")])
    assert done.returncode == 1
    assert len(flwr.calls()) == 2


def test_a_supervisor_that_is_started_again_watches_its_run(flwr):
    (flwr.folder / "supervised-run").write_text("7")
    done = flwr.supervise([listed("7", "running"), listed("7", "finished:completed")])
    assert done.returncode == 0
    assert [call[0] for call in flwr.calls()] == ["list", "list"]


def test_a_run_that_the_superlink_has_forgotten_is_submitted_again(flwr):
    answers = [submitted("1"), listed("0", "running")]
    answers += [submitted("2"), listed("2", "finished:completed")]
    assert flwr.supervise(answers).returncode == 0
    assert [call[0] for call in flwr.calls()] == ["run", "list"] * 2


def test_the_supervisor_gives_up_a_superlink_that_stays_silent(flwr):
    done = flwr.supervise([submitted("1"), None], 'folder="runs/a"', "--patience", "0.5")
    assert done.returncode == 1
    assert "Is the SuperLink running?" in done.stdout


def test_a_supervised_run_needs_a_folder(flwr):
    for config in ("clients=5", 'folder=""', "myfolder=1"):
        done = flwr.supervise([submitted("1")], config)
        assert done.returncode == 2
        assert "must name a run folder" in done.stderr


def write_rounds(folder, database, stop):
    """A server at work: lines, checkpoints that replace each other, and a growing database."""
    with (
        RunFolder.create(folder, config={"rounds": 9}, fingerprint={}) as run,
        closing(sqlite3.connect(database)) as connection,
    ):
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE node (id INTEGER)")
        for round_ in range(100_000):
            if stop.is_set() and round_ > 20:
                return
            with connection:
                connection.execute("INSERT INTO node VALUES (?)", (round_,))
            run.append({"round": round_})
            run.checkpoint(round_ + 1, {"model": torch.full((50,), float(round_))}, {})


def test_a_backup_of_a_server_at_work_can_be_resumed(tmp_path):
    server, stop = tmp_path / "server", threading.Event()
    run = server / "runs" / "first"
    run.mkdir(parents=True)
    arguments = (run, server / "state.db", stop)
    writer = threading.Thread(target=write_rounds, args=arguments)
    writer.start()
    try:
        copies = []
        while len(copies) < 5:
            if not list(run.glob("checkpoints/*.safetensors")):
                time.sleep(0.01)
                continue
            command = [sys.executable, DEPLOY / "backup.py", server, tmp_path / "copies"]
            done = subprocess.run(command, capture_output=True, text=True, timeout=60)
            assert done.returncode == 0, done.stderr
            copies.append(tmp_path / done.stdout.strip())
    finally:
        stop.set()
        writer.join()
    for copy in copies:
        assert copy.stat().st_mode & 0o077 == 0
        with closing(sqlite3.connect(copy / "state.db")) as database:
            ((nodes,),) = database.execute("SELECT count(*) FROM node")
        there = copy / "runs" / "first"
        assert not (there / "lock").exists()
        with RunFolder.resume(there, config={"rounds": 9}, fingerprint={}) as resumed:
            saved = resumed.latest()
            assert saved.tensors["model"][0] == saved.round - 1
            assert [line["round"] for line in resumed.rounds()] == list(range(saved.round))
        assert nodes >= saved.round  # the database is the newer one
        assert len(read(there).rounds) == saved.round


def test_a_backup_names_a_wrong_folder(tmp_path):
    command = [sys.executable, DEPLOY / "backup.py", tmp_path, tmp_path / "copies"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1
    assert "has no state.db" in done.stderr


def certificates(folder, name="server.example"):
    command = [DEPLOY / "certificates.sh", folder, name]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def openssl(*words):
    done = subprocess.run(["openssl", *map(str, words)], capture_output=True, text=True, check=True)
    return done.stdout


@needs_openssl
@pytest.mark.parametrize("name", ["server.example", "10.0.0.5", "2001:db8::1"])
def test_certificates_are_for_the_name_that_nodes_use(tmp_path, name):
    assert certificates(tmp_path, name).count("new: ") == 3
    kind = "DNS" if name == "server.example" else "IP Address"
    text = openssl("x509", "-in", tmp_path / "server.crt", "-noout", "-ext", "subjectAltName")
    wanted = "2001:DB8:0:0:0:0:0:1" if ":" in name else name
    assert f"{kind}:{wanted}" in text
    assert "OK" in openssl("verify", "-CAfile", tmp_path / "ca.crt", tmp_path / "server.crt")
    assert all(path.stat().st_mode & 0o077 == 0 for path in tmp_path.iterdir())


@needs_openssl
def test_certificates_are_renewed_by_the_same_authority_when_they_expire_soon(tmp_path):
    certificates(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert certificates(tmp_path) == ""
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    words = ["x509", "-req", "-in", tmp_path / "server.csr", "-CA", tmp_path / "ca.crt"]
    words += ["-CAkey", tmp_path / "ca.key", "-days", "20", "-out", tmp_path / "server.crt"]
    openssl(*words)
    assert "server.crt. Reload nginx" in certificates(tmp_path)
    for name in ("ca.crt", "ca.key", "link.crt", "link.key"):
        assert (tmp_path / name).read_bytes() == before[name]
    openssl("x509", "-in", tmp_path / "server.crt", "-noout", "-checkend", 300 * 24 * 3600)
    key = openssl("pkey", "-in", tmp_path / "server.key", "-pubout")
    assert openssl("x509", "-in", tmp_path / "server.crt", "-noout", "-pubkey") == key


UNITS = sorted((DEPLOY / "systemd").iterdir())


def unit(path):
    """The sections of a unit; a key may occur more than once."""
    text = path.read_text().replace("\\\n", " ")
    parser = configparser.RawConfigParser(strict=False, interpolation=None)
    parser.optionxform = str
    parser.read_string(text)
    return parser, text


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_units_are_well_formed(path):
    parser, text = unit(path)
    assert parser["Unit"]["Description"]
    if path.suffix == ".timer":
        assert path.with_suffix(".service") in UNITS
        return
    for command in re.findall(r"^ExecStart=(.*)", text, re.MULTILINE):
        for script in re.findall(r"/opt/fedro/deploy/(\S+)", command):
            assert os.access(DEPLOY / script, os.X_OK)
        assert not re.search(r"/(keys|etc/fedro)/\S*\.key", command)  # only as a credential


def test_the_unit_of_the_superlink_listens_on_loopback_like_up_sh():
    command = unit(DEPLOY / "systemd/fedro-superlink.service")[0]["Service"]["ExecStart"]
    assert "--host 127.0.0.1" in command
    assert "--enable-supernode-auth" in command
    start = re.search(r"flower-superlink (.*?)wait_for", (DEPLOY / "up.sh").read_text(), re.DOTALL)
    options = set(re.findall(r"--[a-z-]+", start[1]))
    assert set(re.findall(r"--[a-z-]+", command)) == options


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_finds_no_fault_in_the_units(tmp_path):
    """With the programs at other places, because it looks for them."""
    (tmp_path / "units").mkdir()
    for path in UNITS:
        text = path.read_text().replace("/opt/fedro", str(tmp_path))
        (tmp_path / "units" / path.name).write_text(text)
    (tmp_path / "bin").mkdir()
    for name in ("flower-superlink", "flower-supernode", "python"):
        (tmp_path / "bin" / name).symlink_to("/bin/true")
    (tmp_path / "deploy").symlink_to(DEPLOY)
    units = sorted(map(str, (tmp_path / "units").iterdir()))
    command = ["systemd-analyze", "verify", "--man=no", *units]
    done = subprocess.run(command, capture_output=True, text=True)
    ours = [line for line in done.stderr.splitlines() if "fedro-" in line]
    assert ours == []


def test_the_compose_file_opens_one_port_and_hides_the_superlink():
    """Its syntax; no engine runs it here."""
    text = (DEPLOY / "compose.yaml").read_text()
    composed = yaml.safe_load(text)
    services = composed["services"]
    assert [name for name, service in services.items() if "ports" in service] == ["proxy"]
    assert services["proxy"]["ports"] == ["8000:8000"]
    superlink = services["superlink"]
    assert superlink["network_mode"] == "service:proxy"
    assert {"--host=127.0.0.1", "--enable-supernode-auth"} < set(superlink["command"])
    template = (DEPLOY / "fleet.conf.template").read_text()
    assert set(services["proxy"]["environment"]) == set(re.findall(r"\$\{(\w+)\}", template))
    assert services["node"]["profiles"] == ["node"]
    mounted = [volume.split(":")[0] for volume in services["node"]["volumes"]]
    assert not any("keys" in volume for volume in mounted)
    assert set(composed["volumes"]) == {"server", "node"}
    for name in ("superlink", "node"):
        assert services[name]["cap_drop"] == ["ALL"]


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="needs ssh-keygen")
def test_a_key_in_the_log_of_the_proxy_can_be_found(tmp_path):
    """By the command in docs/operations.md, from the public key that the operator has."""
    command = [
        "ssh-keygen",
        "-q",
        "-t",
        "ecdsa",
        "-b",
        "384",
        "-N",
        "",
        "-f",
        tmp_path / "node.key",
    ]
    subprocess.run(command, check=True)
    page = (APP.parents[1] / "docs/operations.md").read_text()
    (line,) = re.findall(r"^ssh-keygen -e .*", page, re.MULTILINE)
    shown = subprocess.run(["bash", "-c", line], cwd=tmp_path, capture_output=True, text=True)
    key = load_ssh_private_key((tmp_path / "node.key").read_bytes(), None)
    assert shown.stdout == header_of(key)


def header_of(key):
    """The header by which a SuperNode says who it is."""
    request = httpx.Request("POST", "https://localhost")
    context = SimpleNamespace(request=request)
    NodeAuthHttpInterceptor(key, key.public_key()).intercept(context, lambda _: None)
    return request.headers["flwr-public-key"]


def test_the_proxy_tells_nodes_apart():
    template = (DEPLOY / "fleet.conf.template").read_text()
    (middle,) = re.findall(r'"~(.*)" \$middle', template)
    headers = [header_of(ec.generate_private_key(ec.SECP384R1())) for _ in range(20)]
    parts = [re.match(middle.replace("?<", "?P<"), header) for header in headers]
    assert len({part["middle"] for part in parts}) == 20
