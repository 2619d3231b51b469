#!/usr/bin/env python3
"""Keep a run going: submit it, watch it, and submit it again with resume=true whenever it fails.

    supervise.py examples/flower --run-config 'clients=20 byzantine=2 folder="/srv/runs/first"'

The exit code is 0 once a run has completed. It is 1 if somebody stopped the run (`flwr stop`), if
it failed more than --retries times in a row within an hour each, or if the SuperLink did not answer
for an hour. A supervisor that is started again watches the run that it submitted before.
`flwr run --stream` alone would not do: it ends with 0 whether the run failed or not.
"""

import argparse
import json
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

GONE = "finished:gone"  # a SuperLink that answers, but knows nothing of the run


def say(text: str) -> None:
    """Print a line at once, for the journal."""
    print(f"supervise: {text}", flush=True)


def flwr(*words: str) -> dict | None:
    """The answer of a flwr command, or None if there was none or an error."""
    command = ["flwr", *words, "--format", "json"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        answer = json.loads(done.stdout)
    except (subprocess.TimeoutExpired, json.JSONDecodeError) as error:
        say(f"flwr {words[0]} did not answer: {error}")
        return None
    if not answer.get("success"):
        say(f"flwr {words[0]} failed: {answer.get('error-message', done.stderr.strip())}")
        return None
    return answer


@dataclass
class Supervisor:
    """What to run, and for how long to try."""

    app: str
    run_config: str
    retries: int
    wait: float
    poll: float
    patience: float
    run_id_file: Path

    def supervise(self) -> int:
        """Submit until a run completes; the exit code."""
        run, failures = self.submitted_before(), 0
        while failures <= self.retries:
            start = time.monotonic()
            run = run or self.submit()
            last = self.wait_for_end(run) if run else "not submitted"
            if last is None:
                say(f"giving up: no answer for {self.patience:g} s. Is the SuperLink running?")
                return 1
            say(f"run {run}: {last}")
            if last in ("finished:completed", "finished:stopped"):
                self.run_id_file.unlink(missing_ok=True)
                return 0 if last == "finished:completed" else 1
            steady = time.monotonic() - start > self.patience
            run, failures = None, 1 if steady else failures + 1
            if failures <= self.retries:
                say(f"resuming in {self.wait:g} s, {failures} of {self.retries}")
                time.sleep(self.wait)
        say(f"giving up after {failures} failures in a row. `flwr log RUN-ID --show` may say why")
        self.run_id_file.unlink(missing_ok=True)
        return 1

    def submitted_before(self) -> str | None:
        """The run of a supervisor that was interrupted."""
        return self.run_id_file.read_text().strip() or None if self.run_id_file.exists() else None

    def submit(self) -> str | None:
        """Start or resume the run; its id, or None if it could not be submitted."""
        answer = flwr("run", self.app, "--run-config", f"{self.run_config} resume=true")
        if answer is None:
            return None
        run = str(answer["run-id"])
        self.run_id_file.write_text(run)
        return run

    def wait_for_end(self, run: str) -> str | None:
        """Wait until the run has finished; None if the SuperLink has been silent for too long."""
        heard = time.monotonic()
        while time.monotonic() - heard <= self.patience:
            answer = flwr("list")
            if answer is not None:
                heard = time.monotonic()
                statuses = {str(each["run-id"]): each["status"] for each in answer["runs"]}
                if (last := statuses.get(run, GONE)).startswith("finished"):
                    return last
            time.sleep(self.poll)
        return None


def main() -> int:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("app", help="the folder of the app")
    parser.add_argument("--run-config", required=True, help="as for flwr run; it names the folder")
    parser.add_argument("--retries", type=int, default=5, help="failures in a row (default 5)")
    parser.add_argument("--wait", type=float, default=60.0, help="seconds between (default 60)")
    parser.add_argument("--poll", type=float, default=10.0, help="seconds between two looks")
    parser.add_argument("--patience", type=float, default=3600.0, help="seconds; default an hour")
    parser.add_argument("--run-id-file", type=Path, default="supervised-run", help="its memory")
    given = parser.parse_args()
    if not re.search(r'\bfolder *= *"[^"]', given.run_config):
        text = 'the run config must name a run folder, like folder="/srv/fedro/runs/first"; it is '
        parser.error(text + given.run_config)
    return Supervisor(**vars(given)).supervise()


if __name__ == "__main__":
    sys.exit(main())
