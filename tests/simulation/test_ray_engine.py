"""The engine on Ray gives the same bits as the others, and says what it needs and what failed."""

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from engine_cases import make_config
from fedro.common.user_code import UserCodeError
from fedro.models import FlatModel
from fedro.simulation import engines
from fedro.simulation.engines import ray_session
from fedro.simulation.engines.workers import WorkerError

HELPERS = Path(__file__).parents[1] / "helpers"


@pytest.mark.slow
def test_runs_are_the_same_to_the_bit():
    script = HELPERS / "ray_same_bits.py"
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "8 runs are the same"


def test_what_it_needs(monkeypatch):
    flat = FlatModel(make_config().build())
    with pytest.raises(ValueError, match="engine='ray' needs a model that other processes"):
        engines.choose_engine("ray", flat, "cpu", False)
    with pytest.raises(ValueError, match="engine='ray' trains on the CPU, not on cuda"):
        engines.choose_engine("ray", flat, "cuda", True)
    monkeypatch.setattr(engines, "find_spec", lambda name: None if name == "ray" else object())
    with pytest.raises(ValueError, match=r"engine='ray' needs Ray: pip install 'fedro\[ray\]'"):
        engines.choose_engine("ray", flat, "cpu", True)


@pytest.fixture
def environment(monkeypatch):
    """An environment without any of Ray's variables, in a process that has not imported Ray."""
    environment = {}
    monkeypatch.setattr(ray_session.os, "environ", environment)
    monkeypatch.delitem(sys.modules, "ray", raising=False)
    monkeypatch.setattr(ray_session, "version", lambda name: "2.55.1")
    return environment


@pytest.mark.parametrize("address", [None, "", "local"])
def test_a_ray_of_its_own_asks_for_a_token(environment, address):
    if address is not None:
        environment["RAY_ADDRESS"] = address
    environment["RAY_AUTH_MODE"] = "disabled"
    ray_session.prepare_import()
    assert environment["RAY_AUTH_MODE"] == "token"
    assert len(environment["RAY_AUTH_TOKEN"]) == 64
    first = environment["RAY_AUTH_TOKEN"]
    environment["RAY_AUTH_TOKEN"] = ""
    ray_session.prepare_import()
    assert environment["RAY_AUTH_TOKEN"] != first


def test_a_cluster_has_its_own_settings(environment):
    environment |= {"RAY_ADDRESS": "head:6379", "RAY_AUTH_TOKEN_PATH": "/its/token"}
    ray_session.prepare_import()
    assert "RAY_AUTH_TOKEN" not in environment
    assert "RAY_AUTH_MODE" not in environment
    assert environment["RAY_USAGE_STATS_ENABLED"] == "0"


def test_a_ray_that_would_be_open_to_others_is_refused(environment, monkeypatch):
    monkeypatch.setattr(ray_session, "version", lambda name: "2.51.2")
    with pytest.raises(ValueError, match=r"Ray 2\.51\.2 knows no tokens.* install Ray 2\.52"):
        ray_session.prepare_import()
    monkeypatch.setattr(ray_session, "version", lambda name: "3.0.0.dev0")
    imported = SimpleNamespace(is_initialized=lambda: False)
    monkeypatch.setitem(sys.modules, "ray", imported)
    with pytest.raises(ValueError, match="before `import ray`"):
        ray_session.prepare_import()
    imported.is_initialized = lambda: True  # the program's own connection
    ray_session.prepare_import()
    assert "RAY_AUTH_TOKEN" not in environment
    del sys.modules["ray"]
    ray_session.prepare_import()
    imported.is_initialized = lambda: False  # the engine itself has imported it, for another run
    monkeypatch.setitem(sys.modules, "ray", imported)
    ray_session.prepare_import()


@pytest.mark.parametrize(
    ("address", "reason", "advice"),
    [
        ("head:6379", "Failed to connect to Ray cluster at head:6379", "is RAY_ADDRESS right"),
        ("local", "Failed to start GCS.  Last 3 lines:\nlines", "Ray cannot run on this machine"),
    ],
)
def test_a_ray_that_cannot_be_reached_is_named(environment, monkeypatch, address, reason, advice):
    def init(**options):
        assert ("num_cpus" in options) == (address == "local")
        raise ConnectionError(reason) from RuntimeError("Traceback of many lines")

    stopped = []
    fake = SimpleNamespace(
        init=init, is_initialized=lambda: False, shutdown=lambda: stopped.append(True)
    )
    monkeypatch.setitem(sys.modules, "ray", fake)
    environment |= {"RAY_ADDRESS": address, "RAY_TMPDIR": "/tmp"}
    with pytest.raises(WorkerError) as raised, ray_session.ray_session(2):
        pass
    assert str(raised.value).startswith(f"{reason.splitlines()[0]}: {advice}")
    assert stopped
    assert environment["RAY_TMPDIR"] == "/tmp"


@pytest.fixture
def ray_engine():
    pytest.importorskip("ray")
    from fedro.simulation.engines import ray_engine

    return ray_engine


class FakeRay:
    """Tasks that end one by one, the last submitted one first, unless their machine is lost."""

    def __init__(self, **cores):
        self.cores, self.most = cores, 0
        self.stuck, self.waits, self.vanishing = set(), 0, ""

    def nodes(self):
        alive = [
            {"NodeID": k, "Alive": True, "Resources": {"CPU": v}} for k, v in self.cores.items()
        ]
        return [*alive, {"NodeID": "head", "Alive": True, "Resources": {}}]

    def wait(self, running, timeout):
        self.most = max(self.most, len(running))
        rest = [task for task in running if task not in self.stuck]
        self.waits += not rest
        if self.waits == 3:
            self.cores.pop(self.vanishing, None)
        return rest[-1:], running

    def get(self, task):
        if isinstance(task, Exception):
            raise task
        return task


def test_few_tasks_wait_at_a_time(ray_engine, monkeypatch):
    fake = FakeRay(one=2.0, other=1.0)
    monkeypatch.setattr(ray_engine, "ray", fake)
    results = dict(ray_engine.run_tasks(lambda item: 10 * item, range(1, 21)))
    assert results == {item: 10 * item for item in range(1, 21)}
    assert fake.most == 6


def test_tasks_of_a_machine_that_vanished_are_submitted_again(ray_engine, monkeypatch):
    fake, submitted = FakeRay(one=1.0, other=1.0), []
    fake.stuck, fake.vanishing = {2, 3}, "other"
    monkeypatch.setattr(ray_engine, "ray", fake)

    def submit(item):
        submitted.append(item)
        return item if submitted.count(item) == 1 else item + 100

    results = dict(ray_engine.run_tasks(submit, range(1, 7)))
    assert results == {1: 1, 2: 102, 3: 103, 4: 4, 5: 5, 6: 6}
    assert sorted(submitted) == [1, 2, 2, 3, 3, 4, 5, 6]


def test_a_cluster_without_machines_ends_the_run(ray_engine, monkeypatch):
    monkeypatch.setattr(ray_engine, "ray", FakeRay())
    with pytest.raises(WorkerError, match="no machine of the Ray cluster is left"):
        list(ray_engine.run_tasks(lambda item: item, range(1, 4)))


def test_a_task_that_fails_says_why(ray_engine, monkeypatch):
    from ray.exceptions import RayTaskError, WorkerCrashedError

    monkeypatch.setattr(ray_engine, "ray", FakeRay())
    with pytest.raises(
        WorkerError, match=r"Ray could not finish a task in 3 attempts .*memory runs out.*died"
    ):
        ray_engine.result_of(WorkerCrashedError())
    failed = RayTaskError("train_task", "the traceback", ValueError("why"))
    with pytest.raises(WorkerError, match=r"a Ray task failed: (.|\n)*the traceback"):
        ray_engine.result_of(failed)

    class Returned(FakeRay):
        def get(self, task):
            return UserCodeError("model mine:Net", "ZeroDivisionError: why", "mine.py", 7)

    monkeypatch.setattr(ray_engine, "ray", Returned())
    with pytest.raises(UserCodeError, match=r'File "mine\.py", line 7'):
        ray_engine.result_of("task")


def test_a_machine_with_another_version_says_so(ray_engine):
    description = json.dumps({"versions": {"fedro": "0.0.1", "torch": "1.0"}})
    with pytest.raises(ValueError, match=r"the run .*0\.0\.1.*install the same"):
        ray_engine.build_model(description)


@pytest.mark.slow
def test_other_engines_need_no_ray():
    code = (
        "import sys, fedro\n"
        "experiment = fedro.Experiment(clients=5, rounds=1, sampled=3, tolerated=0)\n"
        "list(fedro.run(experiment))\n"
        "sys.exit('ray' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
