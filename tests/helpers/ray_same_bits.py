"""Run experiments with the engines `ray` and `inline` and compare them: python ray_same_bits.py."""

import json
from dataclasses import replace

import torch

import fedro
from fedro.simulation.engines.inline import one_thread
from fedro.simulation.engines.ray_session import prepare_import, ray_session

SMALL = {"dataset": "digits", "clients": 12, "rounds": 3, "local_steps": 3, "batch_size": 5}
RUNS = {
    "an attack": {"byzantine": 2, "attack": "alie"},
    "dropouts": {"byzantine": 2, "attack": "silent"},
    "NaN": {"byzantine": 2, "attack": "nan"},
    "poisoned data": {"byzantine": 2, "attack": "label_flip"},
    "held back": {"byzantine": 2, "attack": "label_flip | constrain(alpha=0.2)"},
    "void rounds": {"byzantine": 5, "attack": "silent", "sampled": 7, "tolerated": 3},
    "data of the server's": {"byzantine": 2, "attack": "mimic", "rule": "fltrust", "root": 50},
    "statistics": {"model": "engine_cases:with_statistics", "sampled": 4, "tolerated": 0},
}


def history(experiment, **changes):
    with one_thread():
        return list(fedro.run(experiment.replace(**changes)))


def assert_same(rounds, others):
    assert len(rounds) == len(others)
    for a, b in zip(rounds, others, strict=True):
        assert torch.equal(a.state.model, b.state.model)
        mine, theirs = (replace(each, seconds={}).as_dict() for each in (a, b))
        assert json.dumps(mine) == json.dumps(theirs)


def assert_that_they_do_what_their_names_say(rounds):
    assert any(each.missing for each in rounds["dropouts"])
    assert any(each.rejected for each in rounds["NaN"])
    assert any(each.void for each in rounds["void rounds"])
    models = [rounds[name][-1].state.model for name in ("poisoned data", "held back")]
    assert not torch.equal(*models)
    last = rounds["statistics"][-1].state.model[-16:]
    assert not torch.equal(last, torch.tensor([0.0] * 8 + [1.0] * 8))


def main():
    experiments = {name: fedro.Experiment(**SMALL, **given) for name, given in RUNS.items()}
    rounds = {name: history(each, engine="inline") for name, each in experiments.items()}
    assert_that_they_do_what_their_names_say(rounds)
    prepare_import()
    for workers in (1, 3):
        with ray_session(workers):  # one for all runs, as in a program that calls ray.init
            for name, experiment in experiments.items():
                assert_same(history(experiment, engine="ray"), rounds[name])
    name = "an attack"  # and each run with a Ray of its own
    first = fedro.run(experiments[name].replace(engine="ray"))
    with one_thread():
        state = next(first).state
    first.close()
    with one_thread():
        rest = list(fedro.run(experiments[name].replace(engine="ray"), state=state))
    assert_same(rest, rounds[name][1:])
    print(f"{len(RUNS)} runs are the same")


if __name__ == "__main__":
    main()
