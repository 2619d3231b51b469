"""What two runs are compared by."""

from safetensors.torch import load_file

from fedro.runs import read


def outcome(path):
    """What must be the same, however often a run was stopped: all but the clock."""
    rounds = [{k: v for k, v in line.items() if k != "seconds"} for line in read(path).rounds]
    model = {k: v.tolist() for k, v in load_file(path / "model.safetensors").items()}
    summary = {k: v for k, v in read(path).summary.items() if k != "seconds"}
    return rounds, model, summary
