"""The long trials of `make soak`, in their short form."""

from pathlib import Path

import flat
import hostile
import kills
import mutants
import numpy as np
import pytest

pytestmark = pytest.mark.slow


@pytest.mark.soak
def test_killed_in_every_way(tmp_path: Path) -> None:
    killed = kills.soak(tmp_path, times=len(kills.WAYS), seed=2, rounds=30)
    assert killed.total() == len(kills.WAYS)


def test_memory_and_writing_stay_flat(tmp_path: Path) -> None:
    used = flat.usage(300, tmp_path)
    assert used.late_memory - used.early_memory < 8.0  # MB; 40 kB a round would be seen
    assert used.last_tenth < 1.1 * used.first_tenth  # bytes written


@pytest.mark.parametrize("text", hostile.TEXTS)
def test_hostile_matrices(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = hostile.kernels
    monkeypatch.setattr(kernels, "MIN_COMPILED_SIZE", kernels.MIN_COMPILED_SIZE)  # to restore it
    tried, found = hostile.soak(text, matrices=40, seed=2)
    assert tried == 40
    assert not found


class Averaging:
    """A rule that claims more than it keeps."""

    entries = ()

    def kappa(self, n: int) -> float:
        return 1.0

    def __call__(self, x: np.ndarray) -> np.ndarray:
        return np.asarray(x.mean(axis=0))


def test_hostile_matrices_find_what_is_not_robust() -> None:
    rng = np.random.default_rng(1)
    cases = [hostile.draw(rng, 9, 3, 5, "float64") for _ in range(100)]
    with np.errstate(all="ignore"):
        wrong = [hostile.violation(Averaging(), case, 3) for case in cases]  # type: ignore[arg-type]
    assert {"not finite"} < {str(found) for found in wrong}
    assert any("κ·variance" in str(found) for found in wrong)
    assert all(found is None for found, case in zip(wrong, cases, strict=True) if not len(case.bad))


def test_mutants_are_where_the_list_says() -> None:
    for mutant in mutants.MUTANTS:
        text = (mutants.ROOT / "src" / "fedro" / mutant.file).read_text()
        assert mutant.old in text, mutant


def test_a_mutant_is_caught() -> None:
    mutant = mutants.MUTANTS[0]
    with mutants.copied() as package:
        assert mutants.run_tests(mutant.tests, package, [*mutants.FAST, "-k", "median"]) == 0
        assert not mutants.survives(mutant, package)
