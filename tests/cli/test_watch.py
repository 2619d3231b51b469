"""`fedro watch` as a user runs it, in a terminal and in scripts."""

import contextlib
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.cells import cell_len
from typer.testing import CliRunner

from fedro.cli import app
from watched_runs import ROUNDS, begin, line, resume, score

TIMEOUT = 60.0


def once(path: Path, *options: str):
    return CliRunner().invoke(app, ["watch", str(path), "--once", *options])


def finished(path: Path, problem: str | None = None) -> None:
    with begin(path) as folder:
        for round in range(ROUNDS):
            folder.append(line(round, score=score(0.9)))
        folder.finish({}, {"problem": problem})


def test_once_in_every_state(tmp_path: Path) -> None:
    finished(tmp_path / "good")
    good = once(tmp_path / "good")
    assert good.exit_code == 0
    assert "finished" in good.stdout
    assert "20 of 20" in good.stdout
    finished(tmp_path / "bad", problem="All 20 rounds were void.")
    bad = once(tmp_path / "bad")
    assert bad.exit_code == 1
    assert f"fedro: {tmp_path / 'bad'}: All 20 rounds were void." in bad.stderr
    with begin(tmp_path / "going") as folder:
        folder.append(line(0))
        assert once(tmp_path / "going").exit_code == 0
    stopped = once(tmp_path / "going")
    assert stopped.exit_code == 1
    assert "going: stopped after 1 of 20 rounds" in stopped.stderr


def test_a_sweep(tmp_path: Path) -> None:
    for name in ("a", "b"):
        finished(tmp_path / name)
    assert once(tmp_path).exit_code == 0
    assert once(tmp_path).stdout.count("20 of 20") == 2
    begin(tmp_path / "c").close()
    both = once(tmp_path)
    assert both.exit_code == 1
    assert "c: stopped after 0 of 20 rounds" in both.stderr


def test_what_cannot_be_watched(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path, tmp_path / "nothing", tmp_path / "file"):
        refused = once(path)
        assert refused.exit_code == 2
        assert f"{path} holds no run" in refused.stderr
        assert "without --once, fedro watch waits for a run to begin" in refused.stderr
    finished(tmp_path / "good")
    assert "every=0: must be at least 0.1 seconds" in once(tmp_path, "--every", "0").stderr
    (tmp_path / "good" / "rounds.jsonl").write_bytes(b"{}\n")
    damaged = once(tmp_path / "good")
    assert damaged.exit_code == 2
    assert "is damaged" in damaged.stderr


def test_no_control_codes_without_a_terminal(tmp_path: Path) -> None:
    finished(tmp_path / "good")
    command = [sys.executable, "-m", "fedro", "watch", str(tmp_path / "good")]
    for options in (["--once"], []):
        done = subprocess.run(
            [*command, *options], capture_output=True, timeout=TIMEOUT, text=True, check=True
        )
        assert "\x1b" not in done.stdout
        assert "20 of 20" in done.stdout


def test_lines_for_a_log(tmp_path: Path) -> None:
    path = tmp_path / "run"
    command = [sys.executable, "-m", "fedro", "watch", str(path), "--every", "0.1"]
    with begin(path) as folder, subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as log:
        try:
            for round in range(2):
                folder.append(line(round, score=score(0.5)))
                while f"round {round + 1} of 20" not in (text := log.stdout.readline()):
                    assert log.poll() is None
            assert f"{path}: running, round 2 of 20, accuracy 50.0%, margin 4 (lowest 4)" in text
            folder.finish({}, {"problem": None})
            assert "finished, round 2 of 20" in log.stdout.readline()
            assert log.wait(TIMEOUT) == 0
        finally:
            log.kill()


class Terminal:
    """`fedro watch` in a terminal of 80 columns."""

    def __init__(self, path: Path) -> None:
        self.master, slave = pty.openpty()
        environment = {**os.environ, "COLUMNS": "80", "LINES": "30", "TERM": "xterm"}
        command = [sys.executable, "-m", "fedro", "watch", str(path), "--every", "0.1"]
        self.process = subprocess.Popen(
            command,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=environment,
            start_new_session=True,
            preexec_fn=take_terminal,
        )
        os.close(slave)
        self.text = ""

    def wait_for(self, text: str) -> None:
        """Wait until the text was shown after what was waited for before."""
        deadline = time.monotonic() + TIMEOUT
        while text not in self.text:
            assert time.monotonic() < deadline, f"no {text!r} in {self.text!r}"
            self.read()
        self.text = self.text.partition(text)[2]

    def read(self) -> None:
        ready, _, _ = select.select([self.master], [], [], 0.1)
        if ready:
            with contextlib.suppress(OSError):  # the other side is closed
                self.text += os.read(self.master, 65536).decode(errors="replace")

    def end(self) -> str:
        """Wait for the end, and return the rest of what was shown."""
        deadline = time.monotonic() + TIMEOUT
        while self.process.poll() is None and time.monotonic() < deadline:
            self.read()
        self.read()
        return self.text


def take_terminal() -> None:
    """Make the terminal send Ctrl-C to this process."""
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


@contextlib.contextmanager
def watching(path: Path) -> Iterator[Terminal]:
    terminal = Terminal(path)
    try:
        yield terminal
    finally:
        terminal.process.kill()
        terminal.process.wait(timeout=TIMEOUT)
        os.close(terminal.master)


SHOW_CURSOR = "\x1b[?25h"


def test_a_run_from_before_its_begin_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "runs" / "new"
    with watching(path) as terminal:
        terminal.wait_for("Waiting for a run in")
        with begin(path) as folder:
            terminal.wait_for("running")
            folder.append(line(0, score=score(0.5)))
            terminal.wait_for("1 of 20")
            folder.checkpoint(1, {}, {})
        terminal.wait_for("stopped")
        with resume(path) as folder:
            terminal.wait_for("running")
            for round in range(1, ROUNDS):
                folder.append(line(round, score=score(0.5 + round / 50)))
            folder.finish({}, {"problem": None})
        rest = terminal.end()
        assert terminal.process.returncode == 0
    assert "finished" in rest
    assert "88.0%" in rest
    assert SHOW_CURSOR in rest
    plain = re.sub(r"\x1b\[[0-9;]*m", "", rest)  # without colors; other codes move the cursor
    rows = re.split(r"\x1b\[[0-9;?]*[a-zA-Z]|[\r\n]", plain)
    assert 60 < max(map(cell_len, rows)) <= 80


def test_a_run_that_fails_at_its_end(tmp_path: Path) -> None:
    with begin(tmp_path) as folder, watching(tmp_path) as terminal:
        terminal.wait_for("running")
        folder.append(line(0, void="too few"))
        folder.finish({}, {"problem": "The only round was void."})
        rest = terminal.end()
        assert terminal.process.returncode == 1
    assert "The only round was void." in rest


@pytest.mark.parametrize("way", ["Ctrl-C", "SIGTERM"])
def test_the_view_ends_cleanly(tmp_path: Path, way: str) -> None:
    with begin(tmp_path), watching(tmp_path) as terminal:
        terminal.wait_for("running")
        if way == "Ctrl-C":
            os.write(terminal.master, b"\x03")
        else:
            os.kill(terminal.process.pid, signal.SIGTERM)
        rest = terminal.end()
        assert terminal.process.returncode == 0
    assert SHOW_CURSOR in rest
    assert "Traceback" not in rest


def test_it_starts_without_heavy_libraries(tmp_path: Path) -> None:
    finished(tmp_path / "good")
    code = (
        "import sys; from fedro.cli import app; sys.argv[1:] = ['watch', sys.argv[1], '--once']\n"
        "try: app()\nexcept SystemExit: pass\n"
        "heavy = {'torch', 'scipy', 'numba', 'matplotlib', 'flwr', 'pydantic'}\n"
        "sys.exit(' '.join(heavy & set(sys.modules)))"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "good")]
    assert subprocess.run(command, capture_output=True, timeout=TIMEOUT).stderr.strip() == b""
