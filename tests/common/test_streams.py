"""One stream for each use: nothing is shared, nothing depends on order."""

import numpy as np
import torch

from fedro.common.streams import derived, seeded, stream


def test_streams_are_repeatable_and_different():
    keys = [(0, "sample", 1), (1, "sample", 1), (0, "batches", 1), (0, "sample", 2), (0, "sample")]
    keys += [(0, "sample", 1, 2), (0, "sample", 12)]
    draws = [tuple(stream(*key).integers(1 << 60, size=4)) for key in keys]
    assert draws == [tuple(stream(*key).integers(1 << 60, size=4)) for key in reversed(keys)][::-1]
    assert len(set(draws)) == len(keys)
    assert len({derived(*key) for key in keys}) == len(keys)
    assert all(0 <= derived(*key) < 1 << 63 for key in keys)


def test_numpy_integers_are_the_same_keys():
    assert derived(np.int64(3), "x", np.int32(4)) == derived(3, "x", 4)


def test_streams_look_uniform():
    means = [stream(seed, "test", 7).random(50).mean() for seed in range(400)]
    assert abs(np.mean(means) - 0.5) < 4 * np.sqrt(1 / 12 / 50 / 400)


def test_seeded_restores_the_global_state():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    with seeded(9):
        first = torch.rand(2)
    assert torch.equal(torch.rand(3), expected)
    with seeded(9):
        assert torch.equal(torch.rand(2), first)
