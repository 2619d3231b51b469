"""Exceptions of the user's functions: which line is shown, and which pass unchanged."""

import functools
import json
import pickle
import sys
import types
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from fedro.common.checks import count
from fedro.common.user_code import (
    PACKAGE_CODE,
    UserCode,
    UserCodeError,
    during,
    is_library_file,
    user_code,
)


def caught(function: Any, *arguments: Any) -> UserCodeError:
    with pytest.raises(UserCodeError) as raised:
        user_code("rule mine", function).wrap(function)(*arguments)
    return raised.value


def helper() -> None:
    raise KeyError("helper")


def line_of(function: Any, offset: int = 1) -> int:
    return int(function.__code__.co_firstlineno) + offset


def test_the_deepest_line_of_the_user_is_shown() -> None:
    def calls_helper() -> None:
        helper()

    def calls_numpy() -> None:
        np.linalg.inv(np.zeros((2, 2)))

    def calls_the_package() -> None:
        count("n", "three", 1)

    error = caught(calls_helper)
    assert (error.file, error.line, error.function) == (__file__, line_of(helper), "helper")
    assert error.source == 'raise KeyError("helper")'
    assert error.reason == "KeyError: 'helper'"
    assert isinstance(error.__cause__, KeyError)
    error = caught(calls_numpy)
    assert (error.file, error.line) == (__file__, line_of(calls_numpy))
    assert error.reason == "LinAlgError: Singular matrix"
    error = caught(calls_the_package)
    assert (error.file, error.line) == (__file__, line_of(calls_the_package))
    assert "n='three': must be a whole number" in str(error)


def test_an_error_that_no_line_of_the_user_raised_shows_the_definition() -> None:
    def takes_two(a: int, b: int) -> None: ...

    error = caught(takes_two, 1)
    assert error.line == line_of(takes_two, 0)
    assert error.source == "def takes_two(a: int, b: int) -> None: ..."
    assert "missing 1 required positional argument: 'b'" in error.reason
    assert caught(int, "x").file is None
    assert str(caught(int, "x")).startswith("the rule mine failed:\n  ValueError: invalid literal")


def test_a_definition_begins_below_its_decorators() -> None:
    @functools.lru_cache(
        maxsize=7,  # this decorator takes three lines
    )
    def decorated(given: int) -> int:
        return given

    error = caught(decorated)
    assert error.source == "def decorated(given: int) -> int:"
    assert (error.file, error.line) == (__file__, line_of(decorated.__wrapped__, 3))


def test_an_exception_whose_text_cannot_be_made() -> None:
    class NastyError(Exception):
        def __str__(self) -> str:
            raise RuntimeError("again")

    def fails() -> None:
        raise NastyError

    error = caught(fails)
    assert error.reason == "NastyError, whose text cannot be shown: its __str__ raised RuntimeError"
    assert (error.file, error.line) == (__file__, line_of(fails))


def test_a_function_of_an_installed_package_shows_its_own_line() -> None:
    code = compile("def fail():\n    return 1 / 0\n", "/x/site-packages/their/rules.py", "exec")
    module = types.ModuleType("their.rules")
    exec(code, vars(module))
    error = caught(module.fail)
    assert (error.file, error.line) == ("/x/site-packages/their/rules.py", 2)


def test_functions_of_the_package_are_not_wrapped() -> None:
    assert user_code("rule", count) is PACKAGE_CODE
    with pytest.raises(ValueError, match="must be a whole number"), user_code("rule", count):
        count("n", "x", 1)
    assert isinstance(user_code("rule", helper), UserCode)
    assert isinstance(user_code("rule", functools.partial(helper)), UserCode)


def test_a_users_function_that_exits_has_failed() -> None:
    with pytest.raises(UserCodeError, match="SystemExit"), user_code("model", helper):
        sys.exit(0)

    class PanicException(BaseException):
        """As extensions written in Rust raise it."""

    with pytest.raises(UserCodeError, match="PanicException"), user_code("data", helper):
        raise PanicException


@pytest.mark.parametrize("kind", [KeyboardInterrupt, GeneratorExit, LookupError])
def test_what_passes(kind: type[BaseException]) -> None:
    with pytest.raises(kind), user_code("rule", helper, (LookupError,)):
        raise kind


def test_the_inner_function_is_blamed_once() -> None:
    with (
        pytest.raises(UserCodeError) as raised,
        during("in round 3", "Go on."),
        during("in a trial"),
        user_code("attack mine", helper),
        user_code("rule mine", helper),
    ):
        helper()
    assert str(raised.value).startswith("the rule mine failed in a trial:\n")
    assert str(raised.value).endswith("\nGo on.")


def test_generators_and_functions_that_run_later() -> None:
    def messages() -> Iterator[int]:
        yield 1
        helper()

    guard = user_code("attack mine", messages)
    items = guard.iterate(messages())
    assert next(items) == 1
    with pytest.raises(UserCodeError, match="KeyError"):
        next(items)
    assert list(guard.iterate([1, 2])) == [1, 2]
    with pytest.raises(UserCodeError, match="KeyError"):
        guard.wrap(helper)()
    assert guard.wrap(max)(1, 2) == 2


def test_it_survives_another_process() -> None:
    error = caught(helper)
    error.moment = "in round 1"
    again = UserCodeError(**json.loads(json.dumps(error.as_dict())))
    assert str(again) == str(error) == str(pickle.loads(pickle.dumps(error)))
    assert error.short == f"KeyError: 'helper' ({__file__}, line {line_of(helper)})"


def test_a_long_text_is_cut() -> None:
    def fail() -> None:
        raise ValueError("line\n" * 1000)

    assert len(str(caught(fail)).splitlines()) < 20


def test_library_files() -> None:
    import fedro

    for module in (fedro, np, json, pytest):
        assert is_library_file(str(module.__file__))
    assert not is_library_file(__file__)
    assert not is_library_file("/home/me/fedro_rules.py")
