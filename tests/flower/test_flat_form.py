"""A model as one array: what clients and the server make of it."""

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp

from fake_flower import FIRST, FakeGrid, answer, honest, model, raises
from fedro.flower import flat_arrays
from fedro.flower.flat_form import FLAT, FORM_KEY, KEPT, FlatForm
from fedro.flower.layout import ArrayLayout, UnusableReply
from flower_cases import arrays_as_vector, start, strategy

BATCHNORM = {
    "norm.running_mean": np.arange(2, dtype=np.float32),
    "norm.running_var": np.ones(2, np.float32),
    "norm.num_batches_tracked": np.array(7),
    "norm.weight": np.full(2, 3, np.float16),
    "mask": np.array([[True], [False]]),
    "scale": np.array(1.5, np.float32),
    "empty": np.zeros((0, 4), np.float32),
}


def with_mod(act, sizes=None):
    """What a client app does that has the mod; `sizes` gets how many arrays it was sent."""
    context, sizes = Context(1, 1, {}, RecordDict(), {}), [] if sizes is None else sizes

    def behave(message):
        sizes.append(len(message.content["arrays"]))
        return flat_arrays(message, context, lambda message, context: act(message))

    return behave


def test_the_flat_form_loses_nothing():
    arrays = model(**BATCHNORM)
    layout = ArrayLayout(arrays)
    record = layout.flat_record(layout.vector(arrays))
    assert sorted(record) == [FLAT, KEPT]
    again = FlatForm.from_text(layout.flat_form.to_text()).unpack(record)
    assert list(again) == list(arrays)
    for name, array in arrays.items():
        assert (again[name].dtype, again[name].shape) == (array.dtype, array.shape), name
        assert np.array_equal(again[name].numpy(), array.numpy())


def test_a_model_without_integers_is_one_array():
    layout = ArrayLayout(model())
    assert list(layout.flat_record(torch.zeros(8))) == [FLAT]
    wide = model(wide=np.array([1 / 3]))
    layout = ArrayLayout(wide)
    record = layout.flat_record(layout.vector(wide))
    assert layout.flat_form.unpack(record)["wide"].numpy()[0] == 1 / 3
    assert layout.flat_form.pack(wide)[FLAT].dtype == "float64"


def test_a_client_with_the_mod_sees_and_sends_named_arrays():
    seen = []

    def act(message):
        seen.append({name: array.numpy() for name, array in message.content["arrays"].items()})
        return honest(1.0)(message)

    arrays = model(**BATCHNORM)
    for flat in (False, True):
        sizes = []
        grid = FakeGrid(20, default=with_mod(act, sizes))
        result = start(strategy(flat=flat, evaluate_clients=7), grid, 2, arrays)
        assert set(sizes) == {2 if flat else len(arrays)}
        floats = [n for n in arrays if np.dtype(arrays[n].dtype).kind == "f"]
        moved = {name: result.arrays[name].numpy() for name in floats}
        assert all(np.allclose(moved[n], arrays[n].numpy() + 2, atol=1e-3) for n in floats)
        assert result.arrays["norm.num_batches_tracked"].numpy() == 7
    named, flat = seen[:7], seen[len(seen) // 2 :][:7]
    assert all(np.array_equal(a[n], b[n]) for a, b in zip(named, flat, strict=True) for n in a)


def test_a_client_that_returns_named_arrays_is_understood_too():
    def without_packing(message):
        text = message.content["config"][FORM_KEY]
        named = FlatForm.from_text(text).unpack(message.content["arrays"])
        return answer(message, {name: array.numpy() + 1 for name, array in named.items()})

    half = dict.fromkeys(range(10), without_packing)
    grid = FakeGrid(20, half, default=with_mod(honest(1.0)))
    result = start(strategy(flat=True), grid, 3)
    assert np.allclose(arrays_as_vector(result.arrays), 3.0)


def test_errors_and_strange_replies_pass_the_mod():
    bad = {
        0: with_mod(raises),
        1: with_mod(lambda m: Message(RecordDict(), reply_to=m)),
        2: with_mod(lambda m: Message(Error(2, "x"), reply_to=m)),
    }
    strat = strategy(flat=True, max_void_rounds=9)
    start(strat, FakeGrid(20, bad, default=with_mod(honest(1.0))), 10)
    nodes = strat.session.ledger.nodes
    assert any("error 2" in reason for reason in nodes[FIRST].missing)
    assert list(nodes[FIRST + 1].rejected) == ["has no arrays under 'arrays'"]


@pytest.mark.parametrize(
    ("arrays", "reason"),
    [
        ({FLAT: np.zeros(7, np.float32)}, "has shape (7,) instead of (8,)"),
        ({FLAT: np.zeros((2, 4), np.float32)}, "has shape (2, 4) instead of (8,)"),
        ({FLAT: np.zeros(8, np.int32)}, "holds numbers of type int32"),
        ({FLAT: np.zeros(8, np.float32), "more": np.zeros(1)}, "does not have"),
    ],
)
def test_flat_replies_are_checked(arrays, reason):
    layout = ArrayLayout(model())
    record = ArrayRecord({name: Array(value) for name, value in arrays.items()})
    with pytest.raises(UnusableReply) as error:
        layout.write(record, torch.zeros(8))
    assert reason in str(error.value)


def test_the_mod_is_one_of_flowers():
    ClientApp(mods=[flat_arrays])
