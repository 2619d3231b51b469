"""Call functions that the user wrote, and say where they failed.

Rules, attacks, models and data of the user's own run deep inside the library. When one of them
raises, its file and line are what the user needs to see::

    with user_code("rule my_rules:medoid", function):
        result = function(rows)

The block turns an exception into a `UserCodeError` with the deepest line of the user's code. Around
a function of the package itself, the block does nothing.
"""

import inspect
import linecache
import re
import sysconfig
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType, TracebackType
from typing import Any, NamedTuple

MAX_LINES = 10  # of the text of an exception

PACKAGE = str(Path(__file__).parent.parent)
LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib")})
NOT_OF_USERS = ("", "builtins", "fedro", "functools", "torch")
NOT_FAILURES = (KeyboardInterrupt, GeneratorExit)  # somebody else stops the function
DEF = re.compile(r"\s*(async\s+)?def\s")
INSTALLED = ("site-packages", "dist-packages")


class Location(NamedTuple):
    """A line of code, as a traceback shows it."""

    file: str
    line: int
    function: str
    source: str  # the text of the line; empty if the file cannot be read


class UserCodeError(RuntimeError):
    """A function that you wrote raised an exception: a rule, an attack, a model, data or a metric.

    The message shows the line of your code that failed. The exception that your function raised is
    the `__cause__`, unless it was raised in another process.

    Attributes:
        what: Which function failed, such as "rule my_rules:medoid".
        reason: The type and the text of the exception.
        file: The file of the line that failed; None if no line of yours was running.
        line: The number of that line.
        function: The name of the function that it is in.
        source: The text of that line.
        moment: When it failed, such as "in round 7"; empty if not known.
        advice: How to go on; empty if there is nothing to say.

    Example:
        >>> import fedro
        >>> def net():
        ...     return 1 / 0
        >>> try:
        ...     fedro.prepare(fedro.Experiment(), model=net)
        ... except fedro.UserCodeError as error:
        ...     print(error.what, "failed:", error.reason)
        model net failed: ZeroDivisionError: division by zero
    """

    def __init__(
        self,
        what: str,
        reason: str,
        file: str | None = None,
        line: int = 0,
        function: str = "",
        source: str = "",
        moment: str = "",
        advice: str = "",
    ) -> None:
        super().__init__(what, reason, file, line, function, source, moment, advice)
        self.what, self.reason, self.moment, self.advice = what, reason, moment, advice
        self.file, self.line, self.function, self.source = file, line, function, source

    def __str__(self) -> str:
        lines = [f"the {self.what} failed{' ' if self.moment else ''}{self.moment}:"]
        if self.file is not None:
            within = f", in {self.function}" if self.function else ""
            lines.append(f'  File "{self.file}", line {self.line}{within}')
            lines += [f"    {self.source}"] if self.source else []
        lines += [f"  {line}" for line in self.reason.splitlines()[:MAX_LINES]]
        return "\n".join([*lines, *filter(None, [self.advice])])

    @property
    def short(self) -> str:
        """The reason and the line that failed, in one line."""
        first = self.reason.partition("\n")[0]
        return first if self.file is None else f"{first} ({self.file}, line {self.line})"

    def as_dict(self) -> dict[str, Any]:
        """The error as JSON values; ``UserCodeError(**values)`` makes it again elsewhere."""
        names = ("what", "reason", "file", "line", "function", "source", "moment", "advice")
        return {name: getattr(self, name) for name in names}


class UserCode:
    """The context in which a function of the user's runs; use `user_code`."""

    def __init__(
        self, what: str, function: Any = None, passing: tuple[type[BaseException], ...] = ()
    ) -> None:
        self.what, self.function, self.passing = what, function, passing

    def __enter__(self) -> None:
        """Start."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Turn an exception of the user's code into a `UserCodeError`."""
        if error is None or isinstance(error, (UserCodeError, *NOT_FAILURES, *self.passing)):
            return
        where = failed_line(error, self.function) or definition(self.function)
        error.__traceback__ = from_users_line(error.__traceback__)
        raise UserCodeError(self.what, _reason(error), *(where or ())) from error

    def iterate(self, items: Iterable[Any]) -> Iterator[Any]:
        """Pass on items that a generator of the user's may make."""
        with self:
            iterator = iter(items)
        while True:
            with self:
                try:
                    item = next(iterator)
                except StopIteration:
                    return
            yield item

    def wrap(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function that calls the given one in this context."""

        def call(*args: Any, **options: Any) -> Any:
            with self:
                return function(*args, **options)

        return call


class PackageCode(UserCode):
    """The context in which a function of the package runs: it changes nothing."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Leave exceptions as they are."""

    def iterate(self, items: Iterable[Any]) -> Iterator[Any]:
        """The items."""
        return iter(items)

    def wrap(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function."""
        return function


PACKAGE_CODE = PackageCode("function of fedro")


def user_code(what: str, function: Any, passing: tuple[type[BaseException], ...] = ()) -> UserCode:
    """Return the context in which to call a function that may be the user's.

    Args:
        what: What error messages call it, to be read after "the".
        function: The function. Around one of the package, the context does nothing.
        passing: Exceptions that have a meaning of their own and are not changed.
    """
    return UserCode(what, function, passing) if is_users(function) else PACKAGE_CODE


@contextmanager
def during(moment: str, advice: str = "") -> Iterator[None]:
    """Say in a `UserCodeError` when the function failed, and how to go on.

    Args:
        moment: Such as "in round 7". An error that has a moment already keeps it.
        advice: A sentence that the message ends with.
    """
    try:
        yield
    except UserCodeError as error:
        error.moment, error.advice = error.moment or moment, error.advice or advice
        raise


def is_users(function: Any) -> bool:
    """Whether a function or class was written outside of this package."""
    return _package(getattr(function, "__module__", None)) != "fedro"


def _reason(error: BaseException) -> str:
    """The type and the text of an exception, whose text the user may have programmed too."""
    kind = type(error).__name__
    try:
        return f"{kind}: {error}".rstrip(": ")
    except Exception as other:
        return f"{kind}, whose text cannot be shown: its __str__ raised {type(other).__name__}"


def failed_line(error: BaseException, function: Any) -> Location | None:
    """The deepest line of the user's code that was running when the exception was raised.

    If the function is in an installed package, the lines of this package count.
    """
    if isinstance(error, SyntaxError):
        file, number, source = error.filename, error.lineno, (error.text or "").strip()
        if file and number and not is_library_file(file):
            return Location(file, number, "", source)
    frames = [*traceback.walk_tb(error.__traceback__)][::-1]
    package = _package(getattr(function, "__module__", None))
    of_user = [pair for pair in frames if is_users_frame(pair[0])]
    of_package = [pair for pair in frames if _package(pair[0].f_globals["__name__"]) == package]
    for frame, line in of_user or (of_package if package not in NOT_OF_USERS else []):
        return _location(frame.f_code, line)
    return None


def _package(module: str | None) -> str:
    return (module or "").partition(".")[0]


def definition(function: Any) -> Location | None:
    """The first line of a function of the user's, for an error that none of its lines raised."""
    if inspect.isclass(function):
        function = function.__init__
    code = getattr(inspect.unwrap(function), "__code__", None) if callable(function) else None
    if not isinstance(code, CodeType) or is_library_file(code.co_filename):
        return None
    return _location(code, _line_of_def(code))


def _line_of_def(code: CodeType) -> int:
    """The line of `def`, below the decorators that a code object begins with."""
    first = code.co_firstlineno
    lines = linecache.getlines(code.co_filename)[first - 1 :]
    if not lines or not lines[0].lstrip().startswith("@") or code.co_name == "<lambda>":
        return first
    heads = (i for i, line in enumerate(lines, first) if DEF.match(line))
    return next(heads, first)


def _location(code: CodeType, line: int) -> Location:
    source = linecache.getline(code.co_filename, line).strip()
    return Location(code.co_filename, line, code.co_name, source)


def is_users_frame(frame: FrameType) -> bool:
    """Whether a frame runs code of the user's and not of a library."""
    file = frame.f_code.co_filename
    if file.startswith("<"):  # typed into an interpreter, or generated by a library
        return frame.f_globals.get("__name__") == "__main__"
    return not is_library_file(file)


def is_library_file(file: str) -> bool:
    """Whether a file belongs to this package, to an installed package or to Python itself."""
    path = Path(file)
    inside = (folder for folder in (PACKAGE, *LIBRARIES) if path.is_relative_to(folder))
    return any(inside) or any(part in INSTALLED for part in path.parts)


def from_users_line(trace: TracebackType | None) -> TracebackType | None:
    """The traceback from the first line of the user's code on."""
    rest = trace
    while rest is not None and not is_users_frame(rest.tb_frame):
        rest = rest.tb_next
    return trace if rest is None else rest
