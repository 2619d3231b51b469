"""What all commands share: the application, errors as messages, and how shares are read."""

import functools
import inspect
import math
import sys
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import Annotated, Any, ParamSpec, TypeVar

import typer
from typer.core import TyperArgument, TyperGroup

P = ParamSpec("P")
R = TypeVar("R")


class Commands(TyperGroup):
    """Click 8.5 makes Typer, as old as Flower pins it, forget what arguments are: tell it again."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        for command in self.commands.values():
            assert command.callback is not None
            written = inspect.signature(command.callback).parameters
            for argument in command.params:
                if isinstance(argument, TyperArgument) and argument.help is None:
                    argument.help = written[str(argument.name)].annotation.__metadata__[0].help


app = typer.Typer(
    name="fedro",
    cls=Commands,
    help="Byzantine-robust federated learning: plan, simulate under attack, deploy.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


def explains_errors(command: Callable[P, R]) -> Callable[P, R]:
    """Turn bad input into one message and exit code 2, never a traceback."""

    @functools.wraps(command)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return command(*args, **kwargs)
        except (ValueError, OSError, OverflowError) as error:
            print(f"fedro: {error}", file=sys.stderr)
            raise typer.Exit(2) from None

    return wrapped


@app.callback(invoke_without_command=True)
def root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False,
) -> None:
    """Byzantine-robust federated learning: plan, simulate under attack, deploy."""
    if version:
        from fedro import __version__

        print(__version__)
        raise typer.Exit


def parse_share(name: str, text: str) -> float:
    """0.05 from '0.05' or '5%'."""
    return float(_share(name, text))


def _share(name: str, text: str) -> Decimal:
    number = text.strip()
    try:
        value = Decimal(number.removesuffix("%"))
    except InvalidOperation:
        value = Decimal("nan")
    if not value.is_finite() or value.adjusted() > 20:
        raise ValueError(f"{name}={text!r}: write a number like 0.05, or a share like 5%")
    return value / 100 if number.endswith("%") else value


def parse_share_of(name: str, text: str, total: int) -> int:
    """15 from '15', or from '10%' of 150; a broken share is rounded up, to be on the safe side."""
    number = text.strip()
    if number.endswith("%"):
        return math.ceil(_share(name, number) * total)
    try:
        return int(number)
    except ValueError:
        raise ValueError(
            f"{name}={text!r}: write a whole number, or a share of the clients like 10%"
        ) from None
