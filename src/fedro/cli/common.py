"""What all commands share: the application, errors as messages, options, and shares as text."""

import functools
import inspect
import signal
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, ParamSpec, TypeVar

import typer
from typer.core import TyperArgument, TyperGroup

from fedro.common.shares import is_share
from fedro.common.user_code import UserCodeError

if TYPE_CHECKING:
    from rich.text import Text

P = ParamSpec("P")
R = TypeVar("R")


class Commands(TyperGroup):
    """Restores the help of arguments, which Click 8.5 loses with the Typer that Flower pins."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        for command in self.commands.values():
            assert command.callback is not None
            parameters = inspect.signature(command.callback).parameters
            for argument in command.params:
                if isinstance(argument, TyperArgument) and argument.help is None:
                    argument.help = parameters[str(argument.name)].annotation.__metadata__[0].help


app = typer.Typer(
    name="fedro",
    cls=Commands,
    help="Byzantine-robust federated learning: plan, simulate under attack, deploy.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)

Quiet = Annotated[bool, typer.Option("--quiet", help="Print errors and warnings only.")]
Markdown = Annotated[bool, typer.Option("--markdown", help="Print a Markdown table.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]


def explains_errors(command: Callable[P, R]) -> Callable[P, R]:
    """Turn errors into one message instead of a traceback.

    The exit code is 2 for wrong input, and 1 if a function that the user wrote has failed.
    """

    @functools.wraps(command)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return command(*args, **kwargs)
        except UserCodeError as error:
            print(f"fedro: {error}", file=sys.stderr)
            raise typer.Exit(1) from None
        except (ValueError, OSError, OverflowError) as error:
            print(f"fedro: {error}", file=sys.stderr)
            raise typer.Exit(2) from None

    return wrapped


@app.callback(invoke_without_command=True)
def root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    """Byzantine-robust federated learning: plan, simulate under attack, deploy."""
    if version:
        from fedro import __version__

        print(__version__)
        raise typer.Exit


def import_from_current_folder() -> None:
    """Make the user's own modules in the current folder importable."""
    sys.path.insert(0, "")


def stop_on_sigterm() -> None:
    """Treat SIGTERM like Ctrl-C, so that a run is saved before it ends."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)


def print_listing(listing: "str | Text") -> None:
    """Print Markdown as it is, and a styled text in colors."""
    if isinstance(listing, str):
        print(listing)
    else:
        from rich.console import Console

        Console().print(listing)


def count_or_share(name: str, text: str) -> int | str:
    """15 from "15"; "10%" as it is."""
    number = text.strip()
    if is_share(number):
        return number
    try:
        return int(number)
    except ValueError:
        raise ValueError(
            f"{name}={text!r}: write a whole number, or a share of the clients like 10%"
        ) from None
