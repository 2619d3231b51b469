"""The lock of a run folder within one process; with several processes: test_faults.py."""

import os
import subprocess
from pathlib import Path

import pytest

from fedro.runs import RunFolderError, read
from run_folders import create, resume


def test_a_second_one_in_this_process_is_refused(path: Path) -> None:
    with create(path):
        message = f"{path} is in use by process {os.getpid()}: wait until it ends, stop it, or"
        for action in (create, resume):
            with pytest.raises(RunFolderError) as refused:
                action(path)
            assert message in str(refused.value)
        assert read(path).rounds == []
    resume(path).close()


def test_a_forgotten_folder_lets_go(path: Path) -> None:
    folder = create(path)
    del folder
    resume(path).close()


def test_other_programs_do_not_inherit_the_lock(path: Path) -> None:
    with create(path):
        sleeper = subprocess.Popen(["sleep", "60"], close_fds=False)
    try:
        resume(path).close()
    finally:
        sleeper.kill()
        sleeper.wait(timeout=10)
