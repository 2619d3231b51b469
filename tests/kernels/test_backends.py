"""Where Numba cannot build the kernels, torch computes the same, after one warning."""

from __future__ import annotations

import tomllib
import warnings
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest

import reference_kernels as reference
from fedro import kernels
from fedro.kernels import backends, compiled
from fedro.kernels.compilation import Kernel
from kernel_cases import SRC, normal, python, results, same

pytestmark = pytest.mark.slow  # its tests train models or start processes


@pytest.fixture
def fail_to_compile(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function that makes Numba fail on the kernels with the given names."""

    def fail_on(*names: str) -> None:
        real = Kernel._compile

        def compile_or_fail(kernel: Kernel, dtype: str) -> None:
            if kernel.name in names:
                raise NotImplementedError("no intrinsic\nand much more about it")
            real(kernel, dtype)

        monkeypatch.setattr(Kernel, "_compile", compile_or_fail)
        monkeypatch.setattr(backends, "_numba_failed", False)
        for name in names:
            monkeypatch.setattr(getattr(compiled, name), "compiled", set())

    return fail_on


def test_a_failed_compilation_warns_once_and_torch_takes_over(fail_to_compile: Any) -> None:
    fail_to_compile(*compiled.__all__)
    x = normal(13, 20_000)  # large enough for Numba
    with pytest.warns(RuntimeWarning, match="cannot build its kernels") as caught:
        value = kernels.distances(x).value
    assert len(caught) == 1
    text = str(caught[0].message)
    assert f"numba {numba.__version__} " in text
    assert "(NotImplementedError: no intrinsic). " in text
    assert "torch back end" in text
    assert f"pip install 'numba{backends.TESTED_NUMBA}'" in text
    assert caught[0].filename == __file__
    assert (value == kernels.distances(x, backend="torch").value).all()
    expected = results(x, "torch")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert same(results(x, "auto"), expected)
    with pytest.raises(RuntimeError, match="cannot build its kernels"):  # what was asked for
        results(x, "numba")


def test_a_kernel_may_fail_after_others_were_used(fail_to_compile: Any) -> None:
    x = normal(13, 20_000) * np.float32(1e-30)  # products underflow, so that `facts` is needed
    value = kernels.combine(x, np.ones(13)).value
    fail_to_compile("facts")
    with pytest.warns(RuntimeWarning, match="cannot build"):
        blended = kernels.blend(x, np.ones(13), x[0])
    np.testing.assert_allclose(blended.value, value, rtol=1e-6)
    wide = reference.wide(x)
    np.testing.assert_allclose(blended.dots, wide @ wide[0], rtol=1e-5, atol=1e-58)
    assert (kernels.combine(x, np.ones(13)).value == value).all()  # by torch, to the last bit


BROKEN_IMPORT = """
import warnings
import numpy as np
from fedro import kernels
from fedro.rules import parse_rule
x = np.random.default_rng(0).standard_normal((13, 20_000)).astype(np.float32)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    rule = parse_rule("nnm | trimmed_mean", b=3)
    aggregate = rule(x)
    value = kernels.band(x, 3, 10).value
    assert (value == kernels.band(x, 3, 10, backend="torch").value).all()
    kernels.MIN_COMPILED_SIZE = 1 << 60
    assert (aggregate == rule(x)).all()
print(*(f"{w.category.__name__}: {w.message}" for w in caught), sep="\\n")
"""


def test_a_broken_import_warns_once_and_torch_takes_over(tmp_path: Path) -> None:
    (tmp_path / "numba").mkdir()
    (tmp_path / "numba" / "__init__.py").write_text("raise ImportError('needs an older NumPy')\n")
    lines = python(BROKEN_IMPORT, PYTHONPATH=f"{tmp_path}:{SRC}").splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("RuntimeWarning: fedro cannot build its kernels with numba ")
    assert "(ImportError: needs an older NumPy)" in lines[0]


def test_the_tested_range_is_the_required_one() -> None:
    project = tomllib.loads((SRC.parent / "pyproject.toml").read_text())["project"]
    assert f"numba{backends.TESTED_NUMBA}" in project["dependencies"]
