"""The run folder: everything about one training run, safe against crashes at any time.

::

    config.toml        the configuration, for people
    run.json           the same for the program, with the fingerprint, versions and time of creation
    rounds.jsonl       a line of strict JSON for each round; NaN and infinities are null
    checkpoints/       the last two, such as round-000010.safetensors: the state after 10 rounds,
                       with a checksum, and the length and hash of rounds.jsonl up to then
      rounds.jsonl     a copy of the lines up to the newest checkpoint
    model.safetensors  the trained model
    summary.json       written last: a run with this file is complete
    lock               locked (flock) by the process that writes, until it ends

Every file except those of lines is written atomically. When a run is resumed, the leftovers of a
crash are removed: temporary files (``*.tmp``), a half-written line, and the lines after the last
checkpoint. If rounds.jsonl was cut off, lost or edited, it is restored from its copy. A checkpoint
whose checksum does not match, or whose lines are in neither file, is renamed to ``*.damaged``, and
the run is resumed from the one before. When a run gets more rounds, its old model and summary are
renamed to ``*.undone``.
"""

from fedro.runs.checkpoints import Checkpoint
from fedro.runs.errors import InUseError, RunFolderError
from fedro.runs.folder import RunFolder, roll_back
from fedro.runs.lock import Lock
from fedro.runs.reading import (
    RecordedRun,
    differences,
    other_configuration,
    read,
    read_config,
    read_given_keys,
    read_run_json,
    read_summary,
)

__all__ = [
    "Checkpoint",
    "InUseError",
    "Lock",
    "RecordedRun",
    "RunFolder",
    "RunFolderError",
    "differences",
    "other_configuration",
    "read",
    "read_config",
    "read_given_keys",
    "read_run_json",
    "read_summary",
    "roll_back",
]
