"""What registered rules and attacks share: a table entry and a factory that `help()` explains."""

import inspect
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedro.common.options import Options
from fedro.common.user_code import PACKAGE_CODE, UserCode, is_users


@dataclass(frozen=True)
class RegisteredFunction:
    """A function in a table: its name, the function itself, and its options."""

    name: str
    function: Callable[..., Any]
    options: Options

    @property
    def summary(self) -> str:
        """The first line of the documentation."""
        return (inspect.getdoc(self.function) or "").partition("\n")[0]

    @property
    def path(self) -> str:
        """The name with which a text finds it, such as "krum" or "my_module:medoid"."""
        module = self.function.__module__
        if module == "__main__" or module.startswith("fedro."):
            return self.name
        exported = getattr(sys.modules.get(module), self.name, None)
        importable = getattr(exported, "entry", None) is self
        return f"{module}:{self.name}" if importable else self.name

    def user_code(
        self, kind: str, *passing: type[BaseException], function: Callable[..., Any] | None = None
    ) -> UserCode:
        """The context in which to call the function, which may be the user's.

        Args:
            kind: What error messages call it, such as "rule".
            *passing: Exceptions that have a meaning of their own and are not changed.
            function: The function to call, if it is not the registered one.
        """
        function = function or self.function
        if not is_users(function):
            return PACKAGE_CODE
        return UserCode(f"{kind} {self.path}", function, passing)

    def check_options(self, given: Mapping[str, Any]) -> None:
        """Raise ValueError unless the options are known and allowed, and none is missing."""
        self.options.check(given)


def make_factory(
    entry: RegisteredFunction,
    build: Callable[[dict[str, Any]], Any],
    *,
    returns: type,
    documentation: str,
    first: Sequence[inspect.Parameter] = (),
) -> Any:
    """Return a function of the entry's options that editors complete and help() explains.

    `build` gets the options as plain Python values. `first` are parameters before the options.
    """

    def make(**options: Any) -> Any:
        return build({k: v.item() if isinstance(v, np.generic) else v for k, v in options.items()})

    function, factory = entry.function, make
    parameters = inspect.signature(function).parameters.values()
    own = [parameter for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY]
    factory.__name__, factory.__qualname__ = entry.name, function.__qualname__
    factory.__module__, factory.__doc__ = function.__module__, documentation
    attributes: Any = factory
    attributes.__signature__ = inspect.Signature([*first, *own], return_annotation=returns)
    attributes.entry = entry
    return factory


def complete_docstring(
    entry: RegisteredFunction, facts: Sequence[str], returns: str, first_argument: str = ""
) -> str:
    """The docstring of the function with the facts of the table and what the factory returns."""
    text, _, example = (inspect.getdoc(entry.function) or "").partition("\n\nExample:\n")
    description, _, options = text.partition("\n\nArgs:\n")
    arguments = "\n".join(filter(None, [first_argument, options]))
    parts = [
        description,
        textwrap.fill(" ".join(facts), 95),
        f"Args:\n{arguments}" if arguments else "",
        f"Returns:\n    {returns}",
        "Raises:\n    ValueError: An option is unknown, missing or not allowed.",
        f"Example:\n{example}" if example else "",
    ]
    return "\n\n".join(filter(None, parts))
