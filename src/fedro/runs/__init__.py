"""The folder of a training run, which never loses the run: kill it anywhere, and it goes on.

::

    config.toml        the configuration as it was run, for people
    run.json           the same for the program, with the fingerprint, versions and time of creation
    rounds.jsonl       a line of strict JSON for each round; NaN and infinities are null
    checkpoints/       the last two, round-000010.safetensors: the state after 10 rounds, with the
                       lines of rounds.jsonl until then and a checksum
    model.safetensors  the trained model
    summary.json       the last file to be written: a run that has it is complete
    lock               held (flock) by the process that writes, until it ends

Every file but rounds.jsonl is put in place all at once. What is left of a crash (``*.tmp``, a
half-written line, lines after the checkpoint) is cleared when the run is resumed. A checkpoint
whose checksum does not fit gets the ending ``.damaged``, and the one before it is taken.
"""

from fedro.runs.checkpoints import Checkpoint
from fedro.runs.files import RunFolderError, make_folder
from fedro.runs.folder import RunFolder, roll_back
from fedro.runs.identity import differences
from fedro.runs.lock import InUseError, Lock
from fedro.runs.reading import Recorded, read, read_config, read_summary

__all__ = [
    "Checkpoint",
    "InUseError",
    "Lock",
    "Recorded",
    "RunFolder",
    "RunFolderError",
    "differences",
    "make_folder",
    "read",
    "read_config",
    "read_summary",
    "roll_back",
]
