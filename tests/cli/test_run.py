"""``fedro run`` and ``fedro rollback``: no run is lost, whatever happens to its process."""

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest
from safetensors.torch import load_file

from fedro.models import build
from fedro.runs import read
from fedro.simulation.experiment import Experiment, read_experiment
from fedro.simulation.preparation import prepare
from fedro.simulation.recording import run_into
from run_cases import invoke, outcome

pytestmark = pytest.mark.slow  # its tests train models or start processes

SMALL = {
    "dataset": "digits",
    "clients": 20,
    "model": "mlp(hidden=16)",
    "byzantine": 4,
    "attack": "mimic(warmup=5)",
    "rounds": 40,
    "local_steps": 2,
    "batch_size": 8,
    "evaluate_every": 5,
    "checkpoint_every": 5,
}
PLAN = ["plan", "--clients", "50", "--byzantine", "5", "--rounds", "20"]
EXPERIMENT = Experiment(**{**read_experiment("demo").as_dict(), **SMALL})


def words(*arguments, **changes):
    """The words of `fedro run` for the small experiment."""
    values = {**SMALL, **changes}
    sets = [text for key, value in values.items() for text in ("--set", f"{key}={value}")]
    return ["run", "demo", *sets, *map(str, arguments)]


def command(*arguments, **changes):
    """The same as a command for another process."""
    return [sys.executable, "-m", "fedro", *words(*arguments, **changes)]


def fedro(*arguments, **options):
    return subprocess.run(
        [sys.executable, "-m", "fedro", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        **options,
    )


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "whole"
    done = invoke(*words("--out", path))
    assert done.exit_code == 0, done.stderr
    return path, done.stdout


def test_a_run_and_its_folder(whole):
    path, output = whole
    for text in ("sample", "tolerate", "final model", "worst tenth", "mean of the last 3"):
        assert text in output
    assert str(path) in output.replace("\n", "")
    recorded = read(path)
    assert recorded.finished
    assert [line["round"] for line in recorded.rounds] == list(range(40))
    keys = {"sampled", "byzantine", "rejected", "missing", "void", "train_loss", "error"}
    keys |= {"variance", "kappa_seen", "kappa_proved", "seconds"}
    assert keys <= set(recorded.rounds[0])
    assert [line["round"] for line in recorded.rounds if "score" in line] == list(range(4, 40, 5))
    assert recorded.summary["final"] == recorded.rounds[-1]["score"]
    assert Experiment(**recorded.config) == EXPERIMENT
    for key in ("fedro", "torch", "device", "precision", "engine"):
        assert key in recorded.fingerprint
    module = build("mlp(hidden=16)", (1, 8, 8), 10)
    module.load_state_dict(load_file(path / "model.safetensors"))


@pytest.mark.slow
def test_worker_processes_killed_with_their_parent_and_resumed_with_others(tmp_path):
    changes = {"engine": "workers", "rounds": 12, "checkpoint_every": 2}
    for workers, path in ((2, tmp_path / "whole"), (1, tmp_path / "stopped")):
        child = subprocess.Popen(
            command("--out", path, "--quiet", workers=workers, **changes), start_new_session=True
        )
        deadline = time.monotonic() + 90
        while child.poll() is None and (workers == 2 or progress(path) < 5):
            assert time.monotonic() < deadline
            time.sleep(0.002)
        if workers == 1:
            os.killpg(child.pid, signal.SIGKILL)  # the workers, too
        assert child.wait() == (0 if workers == 2 else -9)
    again = command("--out", path, "--resume", "--quiet", workers=3, **changes)
    assert subprocess.run(again, timeout=90).returncode == 0
    assert outcome(path) == outcome(tmp_path / "whole")


@pytest.mark.slow
@pytest.mark.parametrize(
    "signal_",
    [
        signal.SIGKILL,
        pytest.param(signal.SIGINT, marks=pytest.mark.soak),
        pytest.param(signal.SIGTERM, marks=pytest.mark.soak),
    ],
)
def test_stopped_again_and_again_and_resumed_it_ends_with_the_same_bits(whole, tmp_path, signal_):
    path = tmp_path / "stopped"
    finished, stops = False, 0
    for attempt in range(5):
        child = subprocess.Popen(
            command("--out", path, *["--resume"] * (path / "run.json").exists()),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        before = progress(path)
        deadline = time.monotonic() + 60
        while child.poll() is None and progress(path) < before + 9 + attempt:
            assert time.monotonic() < deadline
            time.sleep(0.002)
        if child.poll() is None and attempt < 2:
            child.send_signal(signal_)
        out, err = child.communicate(timeout=60)
        if child.returncode == 0:
            finished = True
            break
        stops += 1
        if signal_ == signal.SIGKILL:
            assert child.returncode == -9
        else:
            assert child.returncode == 130, err
            assert err == ""
            assert "Stopped and saved" in out
    assert finished
    assert stops >= 2
    assert outcome(path) == outcome(whole[0])


def progress(path):
    try:
        return (path / "rounds.jsonl").read_bytes().count(b"\n")
    except FileNotFoundError:
        return 0


def test_every_kind_of_stop_inside_python_can_be_resumed(whole, tmp_path):
    """A consumer that breaks, and an exception out of nowhere."""
    path = tmp_path / "run"
    for round_ in run_into(path, EXPERIMENT):
        if round_.round == 7:
            break
    with pytest.raises(ZeroDivisionError):
        fail_at(22, run_into(path, EXPERIMENT, resume=True))
    rest = [round_.round for round_ in run_into(path, EXPERIMENT, resume=True)]
    assert rest == list(range(23, 40))
    assert outcome(path) == outcome(whole[0])


def fail_at(number, rounds):
    with closing(rounds):
        for round_ in rounds:
            if round_.round == number:
                raise ZeroDivisionError


def test_a_finished_run_is_shown_and_a_second_one_refused(whole):
    path, _ = whole
    again = invoke(*words("--out", path))
    assert again.exit_code == 2
    assert "holds a run" in again.stderr
    assert "--resume" in again.stderr
    shown = invoke("run", "--resume", "--out", path)
    assert shown.exit_code == 0
    assert "is complete" in shown.stdout
    assert "final model" in shown.stdout


def test_a_run_is_rolled_back_and_ends_with_the_same_result(whole, tmp_path):
    path = tmp_path / "run"
    shutil.copytree(whole[0], path)
    for times in (1, 2):
        back = invoke("rollback", path, 35)
        assert back.exit_code == 0, back.stderr
        assert f"The run in {path} is back to its state after 35 rounds." in back.stdout
        assert back.stdout.count("renamed to ") == 3  # a checkpoint, the model and the summary
        assert invoke("run", "--resume", "--out", path, "--quiet").exit_code == 0
        assert outcome(path) == outcome(whole[0])
        assert len(list(path.rglob("*.undone*"))) == 4 * times  # and a copy of the lines
    wrong = invoke("rollback", path, 7)
    assert wrong.exit_code == 2
    assert "has no checkpoint after round 7; it has those after 35, 40" in wrong.stderr
    file = path / "checkpoints" / "round-000035.safetensors"
    file.write_bytes(file.read_bytes()[:-1])
    assert "is damaged" in invoke("rollback", path, 35).stderr.replace("\n", " ")
    assert read(path).finished


def test_another_process_on_the_same_folder_is_refused(whole, tmp_path):
    path = tmp_path / "run"
    first = subprocess.Popen(command("--out", path, rounds=100000), stdout=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 60
        while progress(path) < 3:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        second = invoke(*words("--out", path, "--resume", rounds=100000))
        assert second.exit_code == 2
        assert str(first.pid) in second.stderr
    finally:
        first.kill()
        first.wait()


@pytest.mark.slow
def test_a_full_disk_is_said_and_the_run_can_go_on(whole, tmp_path):
    path = tmp_path / "run"

    def little_room():
        resource.setrlimit(resource.RLIMIT_FSIZE, (15_000, 15_000))

    full = subprocess.run(
        command("--out", path), capture_output=True, text=True, timeout=60, preexec_fn=little_room
    )
    assert full.returncode == 2
    for text in ("too large", "--resume", str(path)):
        assert text in full.stderr.replace("\n", " ")
    assert len(full.stderr.strip().splitlines()) <= 3
    done = invoke(*words("--out", path, "--resume"))
    assert done.exit_code == 0, done.stderr
    assert outcome(path) == outcome(whole[0])


def test_resume_refuses_another_experiment_but_not_another_number_of_workers(whole):
    path, _ = whole
    other = invoke(*words("--out", path, "--resume", momentum=0.5))
    assert other.exit_code == 2
    assert "momentum: 0.0 in the run, 0.5 given now" in other.stderr
    for change in ("momentum=0.5", "seed=1", "rule=mean"):
        other = invoke("run", "--resume", "--out", path, "--set", change)
        assert other.exit_code == 2
        assert f"cannot resume {path} with another configuration:" in other.stderr
        assert f"{change.partition('=')[0]}: " in other.stderr
    unknown = invoke("run", "--resume", "--out", path, "--set", "ronds=50")
    assert "--set ronds=50: unknown key 'ronds'" in unknown.stderr
    less = invoke("run", "--resume", "--out", path, "--set", "rounds=39")
    assert less.exit_code == 2
    assert "has 40 rounds already; give more than 40" in less.stderr
    more = invoke(*words("--out", path, "--resume", workers=7))
    assert more.exit_code == 0, more.stderr


@pytest.mark.parametrize("named", [False, True])
def test_a_finished_run_gets_more_rounds(whole, tmp_path, named):
    path = tmp_path / "run"
    shutil.copytree(whole[0], path)
    arguments = words("--resume", "--out", path, rounds=43)
    if not named:
        arguments = ["run", "--resume", "--out", path, "--set", "rounds=43"]
    done = invoke(*arguments)
    assert done.exit_code == 0, done.stderr
    text = " ".join(done.stdout.replace("│", " ").split())
    assert "43 rounds instead of 40: all of them stay within b̂ = 4 with probability 100%" in text
    assert "43 rounds took" in done.stdout
    setup = prepare(EXPERIMENT)
    assert invoke(
        *words("--out", tmp_path / "longer", "--quiet", rounds=43,
               sampled=setup.sampled, tolerated=setup.tolerated)
    ).exit_code == 0  # fmt: skip
    assert outcome(path)[1] == outcome(tmp_path / "longer")[1]
    again = invoke(*arguments)
    assert "is complete" in again.stdout
    assert "instead of" not in again.stdout
    plain = invoke("run", "--resume", "--out", path)
    assert plain.exit_code == 0
    assert "43 rounds took" in plain.stdout


def test_a_run_whose_extension_is_not_safe_is_announced(tmp_path):
    path = tmp_path / "run"
    start = ["run", "demo", "--set", "rounds=12", "--set", "local_steps=1", "--out", path]
    assert invoke(*start).exit_code == 0
    more = invoke("run", "--resume", "--out", path, "--set", "rounds=31")
    assert more.exit_code == 0, more.stderr
    text = " ".join(more.stdout.replace("│", " ").split())
    assert "sample 27, tolerate 9" in text  # a plan for 31 rounds has 30 and 10
    assert "31 rounds instead of 12: all of them stay within b̂ = 9 with probability 97.5%" in text
    assert "for 12; wanted: 99%)" in text
    assert "Not safe" in text


def test_the_demo_gets_more_rounds(tmp_path):
    start = ["run", "--set", "rounds=2", "--set", "local_steps=1", "--out", tmp_path]
    assert invoke(*start).exit_code == 0
    more = ["--set", "rounds=3", "--set", "local_steps=1", "--resume", "--out", tmp_path]
    assert invoke("run", *more).exit_code == 0
    assert {read(path.parent).summary["rounds"] for path in tmp_path.glob("*/run.json")} == {3}


def test_a_share_of_the_clients_is_a_number_of_clients(tmp_path):
    """In a file and with --set, with clients of the data's own number, and when resumed."""
    (tmp_path / "share.toml").write_text('dataset = "digits"\nbyzantine = "20%"\nrounds = 2\n')
    share = [tmp_path / "share.toml", "--set", "sampled=100%", "--set", "tolerated=20%"]
    done = invoke("run", *share, "--out", tmp_path / "run")
    assert done.exit_code == 0, done.output
    assert "10 clients with digits, 2 of them Byzantine" in done.output
    assert "sample 10, tolerate 2" in done.output
    config = read(tmp_path / "run").config
    assert [config[key] for key in ("clients", "byzantine", "sampled", "tolerated")] == [
        10,
        2,
        10,
        2,
    ]
    again = invoke("run", *share, "--resume", "--out", tmp_path / "run")
    assert again.exit_code == 0, again.output
    assert "is complete" in again.output
    (tmp_path / "sweep.toml").write_text(
        f'base = "{tmp_path / "share.toml"}"\nattack = ["none", "nan"]\n'
    )
    for _ in range(2):  # a second time, the runs are found
        swept = invoke("sweep", tmp_path / "sweep.toml", "--out", tmp_path / "sweep", "--jobs", 1)
        assert swept.exit_code == 0, swept.output


def test_shares_follow_the_number_of_clients():
    shares = {"byzantine": "10%", "sampled": "40%", "tolerated": "30%"}
    fifty = Experiment(clients=50, **shares)
    assert (fifty.byzantine, fifty.sampled, fifty.tolerated) == (5, 20, 6)
    hundred = fifty.replace(clients=100)
    assert (hundred.byzantine, hundred.sampled, hundred.tolerated) == (10, 40, 12)
    assert fifty.replace(sampled=40).tolerated == 12


def test_the_attacks_nan_and_inf_can_be_set(tmp_path):
    for name in ("nan", "inf"):
        assert read_experiment("demo", [f"attack={name}"]).attack == name


def test_a_huge_batch_is_reduced_with_a_warning(tmp_path):
    huge = ["run", "demo", "--set", "batch_size=100000", "--set", "rounds=2", "--quiet"]
    done = invoke(*huge, "--out", tmp_path / "run")
    assert done.exit_code == 0
    assert "batch_size=100,000 is far more than the 52 training examples" in done.stderr
    assert read(tmp_path / "run").config["batch_size"] == 520
    assert invoke(*huge, "--out", tmp_path / "run", "--resume").exit_code == 0
    sweep = ["sweep", "demo", "--set", "batch_size=[100000]", "--set", "rounds=2", "--jobs", 1]
    for _ in range(2):  # the second finds its run
        done = invoke(*sweep, "--out", tmp_path / "sweep")
        assert done.exit_code == 0, done.stderr
    shown = invoke(*huge[:-1], "--out", tmp_path / "shown").stdout
    assert "batch_size=100,000 is far more than" in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing.toml"], "there is no such file"),
        (["demo", "--set", "rounds=0"], "rounds=0"),
        (["demo", "--set", "atack=foe"], "unknown key 'atack': did you mean 'attack'"),
        (["demo", "--set", "attack=foo"], "unknown attack 'foo'"),
        (["demo", "--set", "rule=trimed_mean"], "did you mean 'trimmed_mean'"),
        (["demo", "--set", "rule=trimmed_mean(b=3)"], "names b: leave it out"),
        (["demo", "--set", "rule=nnm"], "ends in a mixer"),
        (["demo", "--set", "rule=fltrust"], "root=100"),
        (["demo", "--set", "root=10"], "uses no root data"),
        (["demo", "--set", "rule=fltrust", "--set", "root=10000"], "there are only"),
        (["demo", "--set", "model=mpl"], "did you mean 'mlp'"),
        (["demo", "--set", "dataset=digts"], "did you mean 'digits'"),
        (["demo", "--set", "dataset=no_module:make"], "there is no module 'no_module'"),
        (["demo", "--set", "partition=dirichlet(alpha=-1.0)"], "alpha"),
        (["demo", "--set", "byzantine=50"], "at least one must be honest"),
        (["demo", "--set", "byzantine=25"], "half or more are Byzantine"),
        (["demo", "--set", "sampled=51"], "sampled=51"),
        (["demo", "--set", "sampled=4"], "sampled=4"),
        (
            ["demo", "--set", "rule=bulyan", "--set", "sampled=9", "--set", "tolerated=3"],
            "--set rule=bulyan --set sampled=9 --set tolerated=3: rule='bulyan' with sampled=9",
        ),
        (["demo", "--set", "byzantine=60%"], "--set byzantine=60%: byzantine=30 of 50 clients"),
        (
            ["demo", "--set", "byzantine=ten%"],
            "fedro: --set byzantine='ten%': write a whole number",
        ),
        (["demo", "--set", "byzantine=0.1"], 'write a whole number, or a share like "10%"'),
        (["demo", "--set", "tolerated=10%"], "tolerated is given without sampled"),
        (["demo", "--set", "device=cuda"], "PyTorch sees 0 CUDA devices here"),
        (["demo", "--set", "device=gpu"], "device='gpu'"),
        (["demo", "--set", "device=meta"], "device='meta'"),
        (["demo", "--set", "server_lr=true"], "server_lr=True"),
        (["demo", "--set", "l2='0.1'"], "l2='0.1'"),
        (["demo", "--set", "client_lr=1e308"], "client_lr=1e+308"),
        (["demo", "--set", "dataset=synthetic"], "choose owner or iid"),
        (["demo", "--set", "model=femnist_cnn"], "takes images"),
        (["--set", "attack=alie"], "the demo chooses attack itself"),
        (["--set", "exclude=evidence"], "the demo chooses exclude itself"),
        (["--tensorboard"], "--tensorboard works for a single run"),
        (["demo", "--resume"], "--resume needs --out"),
        (["--resume", "--out", "nowhere"], "nowhere"),
    ],
)
def test_wrong_input_is_one_message_and_starts_nothing(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = invoke("run", *arguments)
    assert done.exit_code == 2, done.output
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_an_unsafe_choice_is_announced_before_training(tmp_path):
    changes = ["--set", "sampled=11", "--set", "tolerated=4", "--set", "rounds=20"]
    done = invoke("run", "demo", *changes, "--out", tmp_path / "run", "--quiet")
    assert done.exit_code == 0
    assert done.stdout == ""
    assert "Not safe: with 10 Byzantine clients of 50, sampling 11 and tolerating 4" in done.stderr
    assert "probability" in done.stderr
    spoken = invoke("run", "demo", *changes, "--out", tmp_path / "spoken")
    assert "Not safe" in spoken.stdout


OWN = """
import torch
from torch import nn
from fedro.attacks import forge
from fedro.rules import register

class Net(nn.Module):
    def __init__(self, classes, width=8):
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(4, width), nn.Linear(width, classes))
    def forward(self, x):
        return self.layers(x)

def make_federation(clients, seed, size=30):
    generator = torch.Generator().manual_seed(seed)
    federation = []
    for _ in range(clients):
        x = torch.randn(size, 4, generator=generator)
        y = (x[:, 0] > 0).long()
        federation.append((x[:20], y[:20], x[20:], y[20:]))
    return federation

@forge(knows="honest updates")
def backwards(view, *, factor: float = 3.0):
    "Backwards."
    return -factor * view.honest_mean

@register()
def trimmed(rows):
    "Trims."
    return rows.band(rows.b, rows.n - rows.b)
"""


@pytest.mark.parametrize("engine", ["auto", "workers"])
def test_your_own_model_data_attack_and_rule(tmp_path, engine):
    (tmp_path / "mine.py").write_text(OWN)
    config = tmp_path / "mine.toml"
    config.write_text(
        'dataset = "mine:make_federation(size=30)"\nclients = 12\nmodel = "mine:Net(width=5)"\n'
        f'byzantine = 2\nattack = "mine:backwards(factor=2.0)"\nrounds = 20\nengine = "{engine}"\n'
        'client_lr = 0.5\nrule = "nnm | mine:trimmed"\n'
    )
    done = fedro("run", config, "--out", "run", "--tensorboard", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert read(tmp_path / "run").summary["final"]["accuracy"] > 0.9
    assert any((tmp_path / "run" / "tensorboard").iterdir())


FATAL = """
import os, signal
from torch import nn

class Net(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.layer = nn.Linear(64, classes)
    def forward(self, x):
        if os.environ.get("FATAL") and "OMP_NUM_THREADS" in os.environ:  # in a worker
            os.kill(os.getpid(), signal.SIGKILL)
        return self.layer(x.flatten(1))
"""


@pytest.mark.slow
def test_a_model_that_kills_its_workers_is_told_and_the_run_can_go_on(tmp_path):
    (tmp_path / "fatal.py").write_text(FATAL)
    arguments = ["--set", "model=fatal:Net", "--set", "engine=workers", "--set", "rounds=3"]
    arguments += ["--set", "workers=1", "--out", "run[/x]"]
    environment = {key: value for key, value in os.environ.items() if key != "OMP_NUM_THREADS"}
    failed = fedro("run", "demo", *arguments, cwd=tmp_path, env={**environment, "FATAL": "1"})
    assert failed.returncode == 2
    assert "3 worker processes died on the same job" in failed.stderr
    assert "Continue with: fedro run --resume --out run[/x]" in failed.stderr
    assert failed.stderr.count("\n") == 2
    done = fedro("run", "demo", *arguments, "--resume", cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr
    assert "run[/x]" in done.stdout


def test_a_wrong_option_of_your_own_model_is_explained(tmp_path, monkeypatch):
    (tmp_path / "model_with_width.py").write_text("def net(classes, *, width=8): ...\n")
    monkeypatch.chdir(tmp_path)
    wrong = invoke("run", "demo", "--set", "model=model_with_width:net(widht=3)")
    assert wrong.exit_code == 2
    assert "unknown option of model_with_width:net 'widht': did you mean 'width'" in wrong.stderr


@pytest.mark.slow
@pytest.mark.soak
def test_the_demo_is_stopped_and_resumed(tmp_path):
    small = ["--set", "rounds=20", "--set", "clients=15", "--set", "byzantine=3"]
    arguments = ["run", *small, "--out", "demo"]
    child = subprocess.Popen(
        [sys.executable, "-m", "fedro", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
    )
    deadline = time.monotonic() + 90
    while not (tmp_path / "demo" / "sign_flip-fedro" / "rounds.jsonl").exists():
        assert time.monotonic() < deadline
        assert child.poll() is None
        time.sleep(0.01)
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=60)
    assert child.returncode == 130
    assert err == ""
    assert "fedro run --resume --out demo --set 'rounds=20' --set 'clients=15'" in out
    done = fedro(*arguments, "--resume", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "plain averaging" in done.stdout


def test_the_demo_compares_with_plain_averaging(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = invoke("run", "--set", "rounds=2", "--set", "clients=15", "--set", "byzantine=3")
    assert done.exit_code == 0, done.stderr
    for name in ("no attack", "sign flipping", "fall of empires", "mimic", "huge values"):
        assert name in done.stdout
    folders = list((tmp_path / "runs").glob("demo-*/*"))
    assert len(folders) == 18
    assert "FedRo with evidence" in done.stdout
    excluding = {folder.name for folder in folders if read(folder).config["exclude"] == "evidence"}
    assert excluding == {folder.name for folder in folders if folder.name.endswith("-evidence")}
    assert all(read(folder).finished for folder in folders)


def test_rounds_are_strict_json(whole):
    for line in (whole[0] / "rounds.jsonl").read_text().splitlines():
        json.loads(line, parse_constant=pytest.fail)


def test_nothing_is_written_elsewhere(tmp_path):
    home = {**os.environ, "HOME": str(tmp_path / "home"), "FEDRO_CACHE": str(tmp_path / "cache")}
    (tmp_path / "here").mkdir()
    changes = ["--set", "rounds=1", "--out", str(tmp_path / "run")]
    assert fedro("run", "demo", *changes, cwd=tmp_path / "here", env=home).returncode == 0
    assert list(Path(tmp_path / "here").iterdir()) == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "demo", "--set", "rounds=1", "--out", "/no-such-folder/run"],
        ["run", "demo", "--set", "rounds=1", "--out", "/no-such-folder"],
        ["sweep", "demo", "--set", "rounds=1", "--out", "/no-such-folder/sweep"],
        ["reproduce", "fig1", "--scale", "smoke", "--out", "/no-such-folder"],
        [*PLAN, "--html", "/no-such-folder/plan.html"],
        [*PLAN, "--plot", "/no-such-folder/plan.png"],
        ["data", "digits", "--plot", "/no-such-folder/data.png"],
    ],
)
def test_no_command_makes_a_folder_at_the_root(arguments):
    done = invoke(*arguments)
    assert done.exit_code == 2
    assert "would create the folder /no-such-folder at the root of the file system" in done.stderr
    assert done.stderr.count("\n") == 1
    assert not Path("/no-such-folder").exists()
