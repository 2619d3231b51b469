"""The settings that a simulation and a deployment share."""

import pytest

from fedro.rules import nnm, trimmed_mean
from fedro.server import TrainingSettings


def test_the_learning_rate_of_a_round():
    assert TrainingSettings(client_lr=0.1).lr(7) == 0.1
    assert TrainingSettings(client_lr="2/K", local_steps=4).lr(7) == 0.5
    schedule = TrainingSettings(client_lr=[(0, 0.1), (3, 0.02)])
    assert [schedule.lr(round) for round in (0, 2, 3, 99)] == [0.1, 0.1, 0.02, 0.02]


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"clents": 3}, "did you mean 'clients'"),
        ({"clients": 0}, "clients=0"),
        ({"server_lr": 0.0}, "server_lr=0.0"),
        ({"client_lr": "fast"}, "client_lr='fast': write a number, a text like"),
        ({"client_lr": "-1/K"}, "write a number"),
        ({"client_lr": [(1, 0.1)]}, "must begin with 0 and increase"),
        ({"client_lr": [(0, 0.1), (0, 0.2)]}, "must begin with 0 and increase"),
        ({"clients": 5, "sampled": 6}, "sampled=6 of clients=5: too many"),
        ({"tolerated": 1}, "tolerated is given without sampled"),
        ({"sampled": 4, "tolerated": 2}, "need 2·tolerated < sampled"),
        ({"bound": "exakt"}, "bound='exakt'"),
        ({"byzantine": "ten"}, "byzantine='ten': write a whole number, or a share like \"10%\""),
        ({"byzantine": "101%", "clients": 5}, "byzantine='101%': write a whole number, or a share"),
        ({"clients": 10, "sampled": "50%", "tolerated": "60%"}, "tolerated=3 of sampled=5"),
    ],
)
def test_values_that_are_not_allowed_are_named(values, reason):
    with pytest.raises(ValueError) as error:
        TrainingSettings(**values)
    assert reason in str(error.value)


def test_subclasses_choose_the_error():
    class OwnError(ValueError):
        pass

    class OwnSettings(TrainingSettings):
        error = OwnError

    with pytest.raises(OwnError):
        OwnSettings(clients=0)


def test_a_rule_object_becomes_text_and_unset_keys_are_left_out():
    values = TrainingSettings(rule=nnm() | trimmed_mean(), seed=3).as_dict()
    assert (values["rule"], values["seed"]) == ("nnm | trimmed_mean", 3)
    assert "clients" not in values


def test_shares_become_numbers_as_soon_as_the_number_of_clients_is_known():
    shares = {"byzantine": "10%", "sampled": "20%", "tolerated": "30%"}
    known = TrainingSettings(clients=155, **shares)
    assert (known.byzantine, known.sampled, known.tolerated) == (16, 31, 10), "all rounded up"
    assert known.for_clients(7) is known
    open_ = TrainingSettings(**shares)
    assert open_.as_dict()["byzantine"] == "10%"
    assert open_.for_clients(155) == known
