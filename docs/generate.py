"""Write the generated parts of the documentation: commands, keys, rules, attacks, Python API.

A generated part stands between two comments in a page:

    <!-- generated: rules -->
    …
    <!-- end generated -->

``python docs/generate.py`` rewrites all of them. With ``--check`` it writes nothing and fails if
one of them is not current.
"""

import ast
import enum
import importlib
import inspect
import io
import re
import sys
import textwrap
import tokenize
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import typer.main

from fedro.attacks import table as attacks
from fedro.cli import app
from fedro.common.text import markdown_table
from fedro.rules import table as rules
from fedro.simulation.experiment import as_markdown as keys

DOCS = Path(__file__).parent
COMMAND = "python docs/generate.py"
GENERATED = re.compile(
    r"(?P<begin><!-- generated: (?P<name>\w+) -->\n)(?P<body>.*?)(?P<end><!-- end generated -->)",
    flags=re.DOTALL,
)
API = {  # every name that users may rely on, by what it is for
    "Plan": ["plan", "Plan", "Outlook", "SampleSize", "scenarios", "Scenario"],
    "Aggregate": [
        "parse_rule",
        "Rule",
        "RULES",
        "rules.register",
        "rules.Rows",
        "rules.NoAggregateError",
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
        "attacks.wait",
        "attacks.View",
    ],
    "Data": ["make_federation", "data.from_clients", "Federation", "Examples"],
    "Train": [
        "Experiment",
        "read_experiment",
        "prepare",
        "run",
        "run_into",
        "Round",
        "UserCodeError",
    ],
    "Compare and report": [
        "read_sweep",
        "sweep",
        "report.write_report",
        "report.ReportFiles",
    ],
    "Deploy": ["flower.FedRo", "flower.TooFewRepliesError"],
    "The paper's formulas": [
        f"planning.theory.{name}"
        for name, value in vars(importlib.import_module("fedro.planning.theory")).items()
        if inspect.isfunction(value) and value.__module__.endswith(".theory") and name[0] != "_"
    ],
}
FACTORIES = {"Aggregate": "rules", "Attack": "attacks"}  # modules with a function for each entry

# --- command line ----------------------------------------------------------------------------


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
        shown = "required"
    elif default is None or default is False or default == [] or isinstance(default, enum.Enum):
        shown = ""
    return names, shown, str(getattr(parameter, "help", "") or "")


# --- Python ----------------------------------------------------------------------------------


def api() -> str:
    """Every public name with its signature and documentation."""
    parts = []
    for title, names in API.items():
        parts.append(f"## {title}")
        parts += [_entry(name, public_object(name)) for name in names]
        if title in FACTORIES:
            parts.append(_factories(FACTORIES[title]))
    return "\n\n".join(parts)


def public_object(name: str) -> Any:
    """The object with a public name like ``attacks.forge``."""
    module, _, last = f"fedro.{name}".rpartition(".")
    return getattr(importlib.import_module(module), last)


def _factories(module: str) -> str:
    """A table of the functions that make a rule or an attack."""
    room = importlib.import_module(f"fedro.{module}")
    table = room.RULES if module == "rules" else room.ATTACKS
    rows = [
        (f"`{_signature(name, function, short=True)}`", _prose(_summary(function)))
        for name in table
        if callable(function := getattr(room, name, None))
    ]
    what = "rule or mixer" if module == "rules" else "attack"
    return (
        f"### Functions of fedro.{module}\n\nEach {what} is also a function in `fedro.{module}`, "
        f"which your editor completes.\n\n{markdown_table(('function', ''), rows)}"
    )


def _entry(name: str, value: Any) -> str:
    heading = f"### fedro.{name}"
    if not callable(value):
        return f"{heading}\n\nA mapping from the name of each {value.kind} to its entry."
    if inspect.isclass(value) and value.__name__ != name.rpartition(".")[2]:
        return f"{heading}\n\nAnother name of `{value.__name__}`."
    if inspect.isclass(value):
        return "\n\n".join([heading, *_class(name.rpartition(".")[2], value)])
    return f"{heading}\n\n{_code(_signature(value.__name__, value))}\n\n{_docstring(_doc(value))}"


def _class(name: str, kind: type) -> Iterator[str]:
    if issubclass(kind, BaseException):
        yield _docstring(_doc(kind))
        return
    own = dict(vars(kind))
    is_model = hasattr(kind, "model_fields")  # the keys have a page of their own
    fields = {} if is_model else _fields(kind)
    is_protocol = getattr(kind, "_is_protocol", False)
    if "__init__" in own and not fields and not is_model and not is_protocol:
        yield _code(_signature(name, kind).removesuffix(" -> None"))
    doc = _doc(kind)
    if fields:
        sections = _sections(doc)
        described = {
            field: text
            for name in ("Args", "Attributes")
            for field, text in _items(sections.get(name, ""))
        }
        if described.keys() <= fields.keys():  # the table of fields says it
            doc = re.sub(r"(?m)^(Args|Attributes):\n(?: +[^\n]*\n|\n)*", "", doc + "\n")
        fields = {
            field: (type_, _flat(_prose(described.get(field) or text)))
            for field, (type_, text) in fields.items()
        }
    yield _docstring(doc)
    if is_model:
        yield "Its fields are the [keys](keys.md) of an experiment."
    if fields:
        rows = [(f"`{field}`", f"`{type_}`", text) for field, (type_, text) in fields.items()]
        yield markdown_table(("field", "type", ""), rows)
    methods = {key: member for key, member in own.items() if _is_public(key, member)}
    short = [key for key in methods if set(_sections(_doc(_function(methods[key])))) == {""}]
    if short:
        rows = [_method_row(key, methods[key]) for key in short]
        yield markdown_table(("method or property", ""), rows)
    for key, member in methods.items():
        if key not in short:
            shown = key if _is_property(member) else _method_signature(key, member)
            yield f"**`{shown}`**"
            yield _docstring(_doc(_function(member)))


def _function(member: Any) -> Any:
    """What is documented: the function of a property, a class method or a cached property."""
    if isinstance(member, property):
        return member.fget
    return getattr(member, "__func__", getattr(member, "func", member))


def _is_property(member: Any) -> bool:
    return isinstance(member, property) or hasattr(member, "func")


def _is_public(name: str, member: Any) -> bool:
    shown = name[0] != "_" or name in ("__call__", "__or__")
    return shown and inspect.isfunction(_function(member)) and bool(_doc(_function(member)))


def _method_signature(name: str, member: Any) -> str:
    return re.sub(r"\(self(?:, )?", "(", _signature(name, _function(member), short=True))


def _method_row(name: str, member: Any) -> tuple[str, str]:
    shown = name if _is_property(member) else _method_signature(name, member)
    return f"`{shown}`", _flat(_prose(_doc(_function(member))))


def _fields(kind: type) -> dict[str, tuple[str, str]]:
    """The type of each field, and the comment beside it."""
    source = inspect.cleandoc("\n" + inspect.getsource(kind))
    comments = {
        token.start[0]: token.string.lstrip("# ")
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT and "noqa" not in token.string
    }
    body = next(node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)).body
    return {
        node.target.id: (ast.unparse(node.annotation), comments.get(node.lineno, ""))
        for node in body
        if isinstance(node, ast.AnnAssign)
        and isinstance(node.target, ast.Name)
        and node.target.id[0] != "_"
    }


def _signature(name: str, function: Any, short: bool = False) -> str:
    """``name(a: int, *, b: int = 3) -> float``; without types if short, on lines if long."""
    signature = inspect.signature(function)
    parts, starred = [], False
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and not starred:
            parts.append("*")
        starred |= parameter.kind in (parameter.KEYWORD_ONLY, parameter.VAR_POSITIONAL)
        parts.append(str(parameter.replace(annotation=parameter.empty) if short else parameter))
    ending = f" -> {inspect.formatannotation(signature.return_annotation)}"
    ending = "" if short or signature.return_annotation is signature.empty else ending
    inside = ", ".join(parts)
    if len(name + inside + ending) > 90 and not short:
        inside = "".join(f"\n    {part}," for part in parts) + "\n"
    text = re.sub(
        r"<(?:[^<>]|<\w+>)* at 0x[0-9a-f]+>|\w+\([^()]*<built-in.*\)", "…", f"({inside}){ending}"
    )
    return name + re.sub(r"\b(?:[a-z_]\w*\.)+(?=[A-Za-z])", "", text)


# --- docstrings as Markdown ------------------------------------------------------------------

SECTION = re.compile(r"^(Args|Attributes|Returns|Yields|Raises|Example|Examples|Note)::?$", re.M)
ITEM = re.compile(r"^(\*{0,2}\w[\w.*, ]*)(?: \([^)]*\))?:\s", re.M)
TITLES = {"Args": "Arguments"}


def _doc(value: Any) -> str:
    return inspect.getdoc(value) or ""


def _summary(value: Any) -> str:
    return _flat(_doc(value).partition("\n\n")[0])


def _sections(doc: str) -> dict[str, str]:
    """The sections of a Google-style docstring; what comes before the first has the name ""."""
    first, *rest = SECTION.split(doc)
    pairs = zip(rest[::2], rest[1::2], strict=True)
    bodies = {name: textwrap.dedent(body.strip("\n")).rstrip() for name, body in pairs}
    return {"": first.strip(), **bodies}


def _items(body: str) -> Iterator[tuple[str, str]]:
    """The names in a section like Args, with their descriptions."""
    _, *rest = ITEM.split(body)
    for name, text in zip(rest[::2], rest[1::2], strict=True):
        yield name, textwrap.dedent(text).strip()


def _docstring(doc: str) -> str:
    """A Google-style docstring as Markdown."""
    parts = []
    for name, body in _sections(doc).items():
        if name == "":
            parts.append(_prose(body))
        elif name in ("Args", "Attributes", "Raises"):
            items = [f"- `{item}`: {_flat(_prose(text))}" for item, text in _items(body)]
            parts.append(f"**{TITLES.get(name, name)}**\n\n" + "\n".join(items))
        elif name in ("Example", "Examples"):
            parts.append(_prose(body) if ">>>" in body else _code(body))
        else:
            parts.append(f"**{name}:** {_prose(body)}")
    return "\n\n".join(parts)


def _flat(text: str) -> str:
    return " ".join(text.replace("\n\n", "<br>").split())


def _code(text: str) -> str:
    return f"```py\n{text}\n```"


def _prose(text: str) -> str:
    """Paragraphs and examples as Markdown; underscores and asterisks are not emphasis."""
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


# --- pages -----------------------------------------------------------------------------------

PARTS: dict[str, Callable[[], str]] = {
    "commands": commands,
    "keys": keys,
    "rules": rules.as_markdown,
    "attacks": attacks.as_markdown,
    "api": api,
}


def pages() -> dict[Path, str]:
    """Each page with a generated part, as it should be."""
    texts = {path: path.read_text(encoding="utf-8") for path in sorted(DOCS.rglob("*.md"))}
    return {
        path: GENERATED.sub(lambda m: f"{m['begin']}\n{PARTS[m['name']]()}\n\n{m['end']}", text)
        for path, text in texts.items()
        if GENERATED.search(text)
    }


def outdated() -> list[Path]:
    """The pages whose generated parts are not current."""
    return [path for path, text in pages().items() if path.read_text(encoding="utf-8") != text]


def main() -> None:
    """Rewrite the pages, or only check them."""
    old = outdated()
    if "--check" in sys.argv[1:]:
        if old:
            names = ", ".join(str(path.relative_to(DOCS.parent)) for path in old)
            raise SystemExit(f"not current: {names}. Run `{COMMAND}`.")
        return
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
    for path in old:
        print(path.relative_to(DOCS.parent))


if __name__ == "__main__":
    main()
