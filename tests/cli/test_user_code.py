"""Bugs in users' own functions and runs that come to nothing, on the command line."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import fedro
from fedro.runs import read
from run_cases import outcome

pytestmark = pytest.mark.slow  # its tests start processes

SMALL = {
    "clients": 8,
    "byzantine": 2,
    "sampled": 7,
    "tolerated": 2,
    "rounds": 4,
    "local_steps": 1,
    "batch_size": 4,
    "evaluate_every": 1,
    "model": "logistic",
    "engine": "inline",
}
DEEP = {"model": "mlp(hidden=8)", "local_steps": 10}  # overflows sooner than a linear model
RESUME = "The run is saved. Continue with: fedro run --resume --out run\n"

# Fails in round 2, whichever process of the run it is in, as long as the file `bug` exists.
ROUND_2 = "import pathlib; lines = pathlib.Path('run/rounds.jsonl')\n" + textwrap.dedent(
    """
    def fails_now():
        rounds = len(lines.read_text().splitlines()) if lines.exists() else 0
        return rounds == 2 and pathlib.Path('bug').exists()
    """
)


class Project:
    """A folder with modules of the user's, in which `fedro` is called."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, name: str, text: str) -> None:
        (self.path / name).write_text(ROUND_2 + textwrap.dedent(text))
        (self.path / "bug").touch()

    def fix(self) -> None:
        (self.path / "bug").unlink()

    def fedro(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "fedro", *arguments],
            capture_output=True,
            text=True,
            timeout=120,
            cwd=self.path,
            env={**os.environ, "COLUMNS": "300"},
        )

    def run(self, **changes: object) -> subprocess.CompletedProcess[str]:
        values = {**SMALL, **changes}
        sets = [text for key, value in values.items() for text in ("--set", f"{key}={value}")]
        return self.fedro("run", "demo", "--quiet", "--out", "run", *sets)

    def message(self, what: str, file: str, within: str, source: str, reason: str) -> str:
        """The short message for a line of one of the files."""
        path = self.path / file
        number = next(
            i for i, line in enumerate(path.read_text().splitlines(), 1) if line.strip() == source
        )
        return (
            f"fedro: the {what}:\n"
            f'  File "{path}", line {number}, in {within}\n'
            f"    {source}\n"
            f"  {reason}\n"
        )


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


RULE = """
    import numpy as np
    from fedro.rules import register

    @register()
    def medoid(rows):
        '''The row with the least sum of distances.'''
        if fails_now():
            {bug}
        return rows.combine(np.eye(rows.n)[np.argmin(rows.sq.sum(axis=1))])
"""


@pytest.mark.parametrize(
    ("bug", "reason"),
    [
        ("scores = rows.n / 0", "ZeroDivisionError: division by zero"),
        pytest.param(
            "raise ValueError('three\\nlines\\nof text')",
            "ValueError: three\n  lines\n  of text",
            marks=pytest.mark.soak,
        ),
        pytest.param(
            "rows.combine(np.ones(3))",
            "ValueError: weights has shape (3,): need one for each of 7 rows",
            marks=pytest.mark.soak,
        ),
    ],
    ids=["a bug", "an error of its own", "wrong use of the package"],
)
def test_a_rule_fails_and_the_run_is_resumed(project: Project, bug: str, reason: str) -> None:
    project.write("my_rules.py", RULE.format(bug=bug))
    failed = project.run(rule="my_rules:medoid")
    expected = project.message(
        "rule my_rules:medoid failed in round 2", "my_rules.py", "medoid", bug, reason
    )
    assert failed.stderr == expected + RESUME
    assert failed.returncode == 1
    assert [line["void"] for line in read(project.path / "run").rounds] == [None, None]
    project.fix()
    resumed = project.fedro("run", "--resume", "--out", "run")
    assert resumed.returncode == 0, resumed.stderr
    (project.path / "run").rename(project.path / "resumed")
    assert project.run(rule="my_rules:medoid").returncode == 0
    assert outcome(project.path / "run") == outcome(project.path / "resumed")


def test_an_attack_fails(project: Project) -> None:
    text = """
        from fedro.attacks import forge

        @forge(knows="honest updates")
        def mine(view):
            '''Send the third honest update.'''
            if fails_now():
                return view.updates[view.honest[99]]
            return view.honest_mean
    """
    project.write("my_attacks.py", text)
    failed = project.run(attack="my_attacks:mine")
    expected = project.message(
        "attack my_attacks:mine failed in round 2",
        "my_attacks.py",
        "mine",
        "return view.updates[view.honest[99]]",
        "IndexError: index 99 is out of bounds for axis 0 with size",
    )
    assert failed.stderr.startswith(expected.rstrip("\n"))
    assert failed.stderr.endswith(RESUME)
    assert failed.returncode == 1


MODEL = """
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self, shape, classes):
            super().__init__()
            self.layer = nn.Linear(64, classes)

        def forward(self, x):
            if fails_now(){when}:
                raise KeyError("layer 3")
            return self.layer(x.flatten(1))
"""


@pytest.mark.parametrize(
    ("engine", "when"),
    [
        ("inline", ""),
        ("batched", " and not self.training"),  # it records the training as a graph, only once
        ("workers", ""),
    ],
)
def test_a_model_fails(project: Project, engine: str, when: str) -> None:
    project.write("my_model.py", MODEL.format(when=when))
    failed = project.run(model="my_model:Net", engine=engine, workers=2)
    expected = project.message(
        "model my_model:Net failed in round 2",
        "my_model.py",
        "forward",
        'raise KeyError("layer 3")',
        "KeyError: 'layer 3'",
    )
    assert failed.stderr == expected + RESUME
    assert failed.returncode == 1
    if engine == "workers":
        project.fix()
        assert project.fedro("run", "--resume", "--out", "run").returncode == 0
        assert len(read(project.path / "run").rounds) == 4


def test_a_data_function_fails_before_there_is_a_run(project: Project) -> None:
    text = """
        def make(clients):
            for client in range(clients):
                if client == 1:
                    yield open("no such file").read()
                yield [[0.0]], [0], [[0.0]], [0]
    """
    project.write("my_data.py", text)
    failed = project.run(dataset="my_data:make", partition="owner")
    assert failed.stderr == project.message(
        "data function my_data:make failed",
        "my_data.py",
        "make",
        'yield open("no such file").read()',
        "FileNotFoundError: [Errno 2] No such file or directory: 'no such file'",
    )
    assert failed.returncode == 1
    assert not (project.path / "run").exists()


def test_a_class_of_lazy_data_fails(project: Project) -> None:
    text = """
        import numpy as np
        from fedro.data import Federation

        class Lazy:
            shape = (4,)

            def __len__(self):
                return 6

            def arrays(self):
                if fails_now():
                    raise OSError("the disk is gone")
                return np.ones((6, 4), np.float32), np.arange(6) % 3

            def labels(self):
                return self.arrays()[1]

        def make(clients):
            return Federation("mine", [(Lazy(), Lazy())] * clients, classes=3)
    """
    project.write("my_data.py", text)
    failed = project.run(dataset="my_data:make", partition="owner")
    expected = project.message(
        "data class Lazy failed in round 2",
        "my_data.py",
        "arrays",
        'raise OSError("the disk is gone")',
        "OSError: the disk is gone",
    )
    assert failed.stderr == expected + RESUME
    assert failed.returncode == 1


def test_a_module_that_cannot_be_imported(project: Project) -> None:
    (project.path / "my_rules.py").write_text("import numpy\nimport nothing_of_this_name\n")
    failed = project.run(rule="my_rules:medoid")
    assert failed.stderr == project.message(
        "module my_rules failed",
        "my_rules.py",
        "<module>",
        "import nothing_of_this_name",
        "ModuleNotFoundError: No module named 'nothing_of_this_name'",
    )
    assert failed.returncode == 1
    (project.path / "my_rules.py").write_text("def medoid(rows):\n    return (1\n")
    failed = project.run(rule="my_rules:medoid")
    assert f'File "{project.path}/my_rules.py", line 2\n    return (1\n' in failed.stderr
    assert "SyntaxError: '(' was never closed" in failed.stderr
    assert failed.returncode == 1


def test_a_sweep_lists_the_failed_run_and_goes_on(project: Project) -> None:
    project.write("my_rules.py", RULE.format(bug="rows.n / 0").replace("'bug'", "__file__"))
    text = (project.path / "my_rules.py").read_text()
    lines = "'sweep/rule=my_rules-medoid/rounds.jsonl'"
    (project.path / "my_rules.py").write_text(text.replace("'run/rounds.jsonl'", lines))
    values = {**SMALL, "rule": ["my_rules:medoid", "median"]}
    config = "".join(f"{key} = {value!r}\n" for key, value in values.items())
    (project.path / "sweep.toml").write_text(config)
    done = project.fedro("sweep", "sweep.toml", "--out", "sweep", "--jobs", "1")
    assert done.returncode == 1
    folders = sorted(path.parent.name for path in project.path.glob("sweep/*/run.json"))
    assert len(folders) == 2
    failed = next(name for name in folders if "medoid" in name)
    assert f"sweep/{failed}/rounds.jsonl" == lines.strip("'")
    expected = project.message(
        "rule my_rules:medoid failed in round 2",
        "my_rules.py",
        "medoid",
        "rows.n / 0",
        "ZeroDivisionError: division by zero",
    ).removeprefix("fedro: ")
    assert f"1 run failed: {expected}" in done.stdout
    assert "1 of 2 runs failed" in done.stderr
    other = next(name for name in folders if "median" in name)
    assert read(project.path / "sweep" / other).finished


def test_from_python_the_printout_has_the_users_lines_and_none_of_the_package(
    project: Project,
) -> None:
    project.write("my_rules.py", RULE.format(bug="rows.n / 0"))
    values = {**SMALL, "rule": "my_rules:medoid"}
    script = f"""import fedro, my_rules
for round_ in fedro.run_into("run", fedro.Experiment(**{values!r})):
    pass
"""
    (project.path / "script.py").write_text(script)
    failed = subprocess.run(
        [sys.executable, "script.py"],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=project.path,
    )
    assert failed.returncode == 1
    files = [line.split('"')[1] for line in failed.stderr.splitlines() if "  File " in line]
    own = [file for file in files if Path(file).parent == project.path]
    assert {Path(file).name for file in own} == {"my_rules.py", "script.py"}
    assert len(files) - len(own) <= 1, failed.stderr
    assert "the direct cause of the following" in failed.stderr
    assert "UserCodeError: the rule my_rules:medoid failed in round 2:" in failed.stderr
    assert "run_into(…, resume=True) continues it" in failed.stderr


def test_a_metric_of_a_server_app_fails(project: Project) -> None:
    helpers = Path(__file__).parents[1] / "helpers"
    script = f"""import sys
sys.path.append({str(helpers)!r})
from fake_flower import FakeGrid
from flower_cases import start, strategy

def evaluate(round, arrays):
    if round == 2:
        return {{"accuracy": 1 / 0}}

start(strategy(folder="run"), FakeGrid(), 3, evaluate_fn=evaluate)
"""
    (project.path / "script.py").write_text(script)
    failed = subprocess.run(
        [sys.executable, "script.py"], capture_output=True, text=True, timeout=120, cwd=project.path
    )
    assert failed.returncode == 1
    assert (
        "UserCodeError: the function evaluate_fn failed in round 2:\n"
        f'  File "{project.path}/script.py", line 8, in evaluate\n'
        '    return {"accuracy": 1 / 0}\n'
        "  ZeroDivisionError: division by zero\n"
    ) in failed.stderr
    package = str(Path(fedro.__file__).parent)
    assert sum(f'File "{package}' in line for line in failed.stderr.splitlines()) <= 1


def test_a_model_fails_in_the_trial_step(project: Project) -> None:
    project.write("my_model.py", MODEL.format(when=" or True"))
    failed = project.run(model="my_model:Net")
    assert failed.stderr == project.message(
        "model my_model:Net failed in a trial step with 4 examples of shape (1, 8, 8)",
        "my_model.py",
        "forward",
        'raise KeyError("layer 3")',
        "KeyError: 'layer 3'",
    )
    assert failed.returncode == 1


@pytest.mark.parametrize(
    ("bug", "reason"),
    [
        (
            "return out[:, :9]",
            "ValueError: the model returns outputs of shape (4, 9); need (4, ",
        ),
        ("return out, x", "TypeError: the model returns tuple; it must return a tensor"),
    ],
)
def test_a_model_with_the_wrong_outputs(project: Project, bug: str, reason: str) -> None:
    text = MODEL.format(when="").replace("return self.layer(", "out = self.layer(")
    project.write("my_model.py", f"{text}            {bug}\n")
    failed = project.run(model="my_model:Net", batch_size=4)
    expected = project.message(
        "model my_model:Net failed in a trial step with 4 examples of shape (1, 8, 8)",
        "my_model.py",
        "forward",
        "def forward(self, x):",
        reason,
    )
    assert failed.stderr.startswith(expected.rstrip("\n"))
    assert failed.returncode == 1


def test_a_model_of_layers_that_do_not_fit(project: Project) -> None:
    text = """
        from torch import nn

        def net(classes):
            return nn.Sequential(nn.Flatten(), nn.Linear(63, classes))

        notes = "not a model"
    """
    project.write("my_model.py", text)
    failed = project.run(model="my_model:net")
    assert failed.stderr == project.message(
        "model my_model:net failed in a trial step with 4 examples of shape (1, 8, 8)",
        "my_model.py",
        "net",
        "def net(classes):",
        "RuntimeError: mat1 and mat2 shapes cannot be multiplied (4x64 and 63x10)",
    )
    assert failed.returncode == 1
    failed = project.run(model="my_model:notes")
    assert "my_model:notes is str, not a class or function of a model" in failed.stderr
    assert failed.returncode == 2


# --- runs that come to nothing -------------------------------------------------------------------


def test_a_learning_rate_of_a_million(project: Project) -> None:
    failed = project.run(**DEEP, client_lr=1e6, rounds=12, attack="none")
    told, problem = failed.stderr.splitlines()
    assert told.startswith("fedro: round 0: the loss of ")
    assert "honest clients is not finite" in told
    assert problem.startswith("fedro: All 12 rounds were void: the model never changed. ")
    for line in (told, problem):
        assert "client_lr=1e+06 is too large: lower it" in line
    assert failed.returncode == 1
    recorded = read(project.path / "run")
    assert recorded.finished
    assert f"fedro: {recorded.summary['problem']}" == problem
    assert all(line["diverged"] > 0 for line in recorded.rounds)
    report = project.fedro("report", "run", "--out", "report.html")
    assert report.returncode == 0, report.stderr
    assert recorded.summary["problem"] in (project.path / "report.html").read_text()
    again = project.fedro("run", "--resume", "--out", "run")
    assert again.returncode == 1
    assert again.stderr == f"{problem}\n"


def test_losses_become_nan_later_and_it_is_told_in_that_round(project: Project) -> None:
    values = {**SMALL, **DEEP, "client_lr": "[[0, 0.1], [3, 1e30]]", "rounds": 6, "attack": "none"}
    sets = [text for key, value in values.items() for text in ("--set", f"{key}={value}")]
    done = project.fedro("run", "demo", "--out", "run", *sets)
    notices = [line for line in done.stdout.splitlines() if "not finite. " in line]
    assert [line.split(":")[0] for line in notices] == ["round 3"]
    assert "client_lr=1e+30 is too large" in notices[0]
    diverged = [line["diverged"] for line in read(project.path / "run").rounds]
    assert diverged[:3] == [0, 0, 0]
    assert all(diverged[3:])
    assert "The last 3 of 6 rounds were void" in done.stderr
    assert done.returncode == 1


def test_too_few_clients_for_silent_attackers(project: Project) -> None:
    failed = project.run(attack="silent", clients=6, sampled=6, tolerated=2, byzantine=2, rounds=12)
    assert "All 12 rounds were void: the model never changed." in failed.stderr
    assert "4 of 6 replies could be used (2× did not answer)" in failed.stderr
    assert "tolerating 2 needs at least 5. Sample at least 7 clients" in failed.stderr
    assert failed.returncode == 1


def test_a_destroyed_average_is_a_note_in_a_sweep(project: Project) -> None:
    values = {**SMALL, **DEEP, "attack": "huge", "rule": ["mean", "median"], "rounds": 12}
    config = "".join(f"{key} = {value!r}\n" for key, value in values.items())
    (project.path / "sweep.toml").write_text(config)
    done = project.fedro("sweep", "sweep.toml", "--out", "sweep", "--jobs", "1")
    assert done.returncode == 0, done.stderr
    notes = [line for line in done.stdout.splitlines() if "destroyed the model" in line]
    assert len(notes) == 1
    assert notes[0].startswith("rule=mean: The last ")
    assert "the rule mean withstands no Byzantine client" in notes[0]
