"""The reference, made from the code: commands, keys, rules, attacks, public names."""

import ast
import enum
import importlib
import inspect
import io
import re
import tokenize
from collections.abc import Iterator
from typing import Any

import click
import typer.main

from fedro.attacks import table as attacks
from fedro.cli import app
from fedro.common.text import markdown_table
from fedro.rules import table as rules
from fedro.simulation.experiment import as_markdown as keys

API = {  # every name that users may rely on, by what it is for
    "Plan": ["plan", "Plan", "Outlook"],
    "Aggregate": [
        "parse_rule",
        "Rule",
        "RULES",
        "rules.register",
        "rules.Rows",
        "search_kappa",
        "WorstCase",
        "Found",
    ],
    "Attack": [
        "parse_attack",
        "Attack",
        "ATTACKS",
        "attacks.forge",
        "attacks.poison",
        "attacks.silence",
        "attacks.train",
        "attacks.View",
    ],
    "Data": ["make_federation", "data.from_clients", "Federation", "Examples"],
    "Train": ["Experiment", "read_experiment", "prepare", "run", "run_into", "Round"],
    "Compare and report": ["read_sweep", "sweep", "report.write_report"],
    "Deploy": ["flower.FedRo", "flower.TooFewRepliesError"],
    "The paper's formulas": [
        f"theory.{name}"
        for name, value in vars(importlib.import_module("fedro.planning.theory")).items()
        if inspect.isfunction(value) and value.__module__.endswith(".theory") and name[0] != "_"
    ],
}


def commands() -> str:
    """Every command with its arguments and options, as Click knows them."""
    group = typer.main.get_command(app)
    assert isinstance(group, click.Group)
    return "\n\n".join(_command(name, group.commands[name]) for name in group.commands)


def _command(name: str, command: click.Command) -> str:
    context = click.Context(command, info_name=f"fedro {name}")
    usage = " ".join([f"fedro {name}", *command.collect_usage_pieces(context)])
    rows = [_option(parameter) for parameter in command.params if parameter.name != "help"]
    table = markdown_table(("", "default", "meaning"), rows)
    return f"## fedro {name}\n\n{_prose(command.help or '')}\n\n```text\n{usage}\n```\n\n{table}"


def _option(parameter: click.Parameter) -> tuple[str, str, str]:
    if isinstance(parameter, click.Argument):
        names, default = f"`{parameter.human_readable_name.upper()}`", parameter.default
    else:
        names, default = ", ".join(f"`{name}`" for name in parameter.opts), parameter.default
    shown = f"`{default}`"
    if parameter.required:
        shown = "needed"
    elif default is None or default is False or default == [] or isinstance(default, enum.Enum):
        shown = ""
    return names, shown, str(getattr(parameter, "help", "") or "")


def api() -> str:
    """Every public name: its signature, what it does, its fields and methods."""
    parts = []
    for title, names in API.items():
        parts.append(f"## {title}")
        parts += [_entry(name, find(name)) for name in names]
    return "\n\n".join(parts)


def find(name: str) -> Any:
    """What a public name like ``attacks.forge`` stands for."""
    module, _, last = f"fedro.{name}".rpartition(".")
    return getattr(importlib.import_module(module), last)


def _entry(name: str, value: Any) -> str:
    heading = f"### fedro.{name}"
    if not callable(value):
        return f"{heading}\n\nA table: {value.kind} → entry, with {len(value)} names."
    if inspect.isclass(value):
        return "\n\n".join([heading, *_class(name.rpartition(".")[2], value)])
    return f"{heading}\n\n{_code(_signature(value.__name__, value))}\n\n{_prose(_doc(value))}"


def _class(name: str, kind: type) -> Iterator[str]:
    if issubclass(kind, BaseException):
        yield _prose(_doc(kind))
        return
    own = dict(vars(kind))
    described = hasattr(kind, "model_fields")  # the keys have a page of their own
    fields = {} if described else _fields(kind)
    if "__init__" in own and not fields and not described:
        yield _code(_signature(name, kind).removesuffix(" -> None"))
    yield _prose(_doc(kind))
    if described:
        yield "Its fields are the [keys](keys.md) of an experiment."
    if fields:
        rows = [(f"`{field}`", f"`{type_}`", text) for field, (type_, text) in fields.items()]
        yield markdown_table(("field", "type", ""), rows)
    methods = [_method(key, member) for key, member in own.items() if _public(key, member)]
    if methods:
        yield markdown_table(("method or property", ""), methods)


def _public(name: str, member: Any) -> bool:
    member = getattr(member, "__func__", getattr(member, "func", member))
    shown = name[0] != "_" or name in ("__call__", "__or__")
    kinds = isinstance(member, property) or inspect.isfunction(member)
    return shown and kinds and bool(_doc(member))


def _method(name: str, member: Any) -> tuple[str, str]:
    if isinstance(member, property) or hasattr(member, "func"):
        return f"`{name}`", _prose(_doc(member))
    function = getattr(member, "__func__", member)
    shown = re.sub(r"\(self(?:, )?", "(", _signature(name, function, short=True))
    return f"`{shown}`", _prose(_doc(function)).replace("\n\n", "<br>").replace("\n", " ")


def _fields(kind: type) -> dict[str, tuple[str, str]]:
    """{field: (type, what the comment beside it says)}."""
    source = inspect.cleandoc("\n" + inspect.getsource(kind))
    comments = {
        token.start[0]: token.string.lstrip("# ")
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT and "noqa" not in token.string
    }
    body = next(node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)).body
    return {
        node.target.id: (ast.unparse(node.annotation), _prose(comments.get(node.lineno, "")))
        for node in body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }


def _signature(name: str, function: Any, short: bool = False) -> str:
    """``name(a: int, *, b: int = 3) -> float``, without types if short, on lines if long."""
    found = inspect.signature(function)
    parts, starred = [], False
    for parameter in found.parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and not starred:
            parts.append("*")
        starred |= parameter.kind in (parameter.KEYWORD_ONLY, parameter.VAR_POSITIONAL)
        parts.append(str(parameter.replace(annotation=parameter.empty) if short else parameter))
    ending = f" -> {inspect.formatannotation(found.return_annotation)}"
    ending = "" if short or found.return_annotation is found.empty else ending
    inside = ", ".join(parts)
    if len(name + inside + ending) > 90 and not short:
        inside = "".join(f"\n    {part}," for part in parts) + "\n"
    text = re.sub(r"<[^<>]* at 0x[0-9a-f]+>|\w+\([^()]*<built-in.*\)", "…", f"({inside}){ending}")
    return name + re.sub(r"\b(?:[a-z_]\w*\.)+(?=[A-Za-z])", "", text)


def _doc(value: Any) -> str:
    return inspect.getdoc(value) or ""


def _code(text: str) -> str:
    return f"```py\n{text}\n```"


def _prose(text: str) -> str:
    """A docstring as Markdown: examples become code, signs of emphasis are meant as they are."""
    parts = []
    for part in re.split(r"\n\s*\n", text.strip()):
        if part.startswith(">>>"):
            parts.append(f"```pycon\n{part}\n```")
        elif part.strip() != "::":
            pieces = re.split(r"(`+[^`]*`+)", part)
            plain = (piece.replace("<", "&lt;") for piece in pieces[::2])
            pieces[::2] = [re.sub(r"([_*])", r"\\\1", piece) for piece in plain]
            parts.append("".join(pieces))
    return "\n\n".join(parts)


TABLES = {
    "commands": commands,
    "keys": keys,
    "rules": rules.as_markdown,
    "attacks": attacks.as_markdown,
    "api": api,
}
