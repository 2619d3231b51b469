"""The small language of pipelines: names with options, joined by ``|``.

``"arc | nnm | krum(original=True)"`` becomes three stages. A name may be that of a user's own
function, ``"my_module:medoid"``, which `load` imports.
"""

import ast
import importlib
from typing import Any, NamedTuple

from fedro.common.registry import unknown
from fedro.common.user_code import UserCode


class Stage(NamedTuple):
    """One step of a pipeline: ``centered_clipping(tau=10)`` is a name and its options."""

    name: str
    options: dict[str, Any]

    def __str__(self) -> str:
        options = ", ".join(f"{key}={value!r}" for key, value in self.options.items())
        return f"{self.name}({options})" if options else self.name


def parse_stage(kind: str, text: str) -> Stage:
    """Parse one name with options: ``"dirichlet(alpha=0.5)"`` or ``"my_module:make(size=3)"``."""
    head, bracket, options = text.partition("(")
    module, colon, name = head.rpartition(":")
    rest = name + bracket + options
    stages = parse_stages(rest, kind)
    if len(stages) != 1:
        raise ValueError(f"{text!r}: give one {kind}, not {len(stages)} joined by '|'")
    return Stage(module.strip() + colon + stages[0].name, stages[0].options)


def parse_stages(text: str, kind: str = "rule") -> list[Stage]:
    """Parse ``"arc | nnm | krum(original=True)"``; only names and literals are allowed."""
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise _syntax_error(text, kind) from None
    nodes: list[ast.expr] = []
    while isinstance(tree, ast.BinOp) and isinstance(tree.op, ast.BitOr):
        nodes.append(tree.right)
        tree = tree.left
    nodes.append(tree)
    return [_stage(node, text, kind) for node in reversed(nodes)]


def _stage(node: ast.expr, text: str, kind: str) -> Stage:
    if isinstance(node, ast.Name):
        return Stage(node.id, {})
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)) or node.args:
        raise _syntax_error(text, kind)
    options: dict[str, Any] = {}
    for keyword in node.keywords:
        try:
            value = ast.literal_eval(keyword.value)
        except (ValueError, TypeError, MemoryError, RecursionError):
            raise _syntax_error(text, kind) from None
        if keyword.arg is None or keyword.arg in options:
            raise _syntax_error(text, kind)
        options[keyword.arg] = value
    return Stage(node.func.id, options)


EXAMPLES = {
    "rule": "'nnm | trimmed_mean' or 'centered_clipping(tau=10.0)'",
    "attack": "'alie' or 'sign_flip | takeover'",
}


def _syntax_error(text: str, kind: str) -> ValueError:
    joined = "names joined by '|'" if kind in EXAMPLES else "a name"
    example = EXAMPLES.get(kind, "'name' or 'name(option=1.0)'")
    return ValueError(
        f"cannot read the {kind} {text!r}: write {joined}, with options by name, like {example}"
    )


class NoSuchModuleError(ValueError):
    """There is no module of this name."""


def load(text: str) -> Any:
    """Import what ``"my_module:name"`` names.

    Raises:
        ValueError: There is no such module, or no such name in it.
        UserCodeError: The module cannot be imported.
    """
    module, _, name = text.partition(":")
    with UserCode(f"module {module}", passing=(NoSuchModuleError,)):
        try:
            imported = importlib.import_module(module)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{module}.".startswith(f"{error.name}."):
                raise  # the module exists, but one that it imports does not
            raise NoSuchModuleError(
                f"{text!r}: there is no module {module!r}; run from the folder that holds it, "
                "or put that folder on PYTHONPATH"
            ) from None
    if not hasattr(imported, name):
        names = [key for key in vars(imported) if key[0].isalpha()]
        raise ValueError(f"{text!r}: {unknown(f'name in {module}', name, names)}")
    return getattr(imported, name)
