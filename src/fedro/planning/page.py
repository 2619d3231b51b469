"""The plan as a page to play with: one file that needs no network.

``plan.js`` computes in the browser what `fedro.planning` computes; the tests hold the two together.
"""

import json
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path

from fedro.common.atomic_files import put
from fedro.planning.planner import Plan

MOST = 10**6  # clients: the page's integers are exact, and its answers quick, up to here
START = ("clients", "byzantine", "rounds", "confidence", "dropout", "retries", "bound")


def as_html(chosen: Plan) -> str:
    """The page, beginning with the values of this plan."""
    start = {name: getattr(chosen, name) for name in START}
    start["max_kappa"] = _own_limit(chosen)
    text = _part("plan.html")
    for name, filling in (
        ("version", version("fedro")),
        ("start", json.dumps(start)),
        ("plan.css", _part("plan.css")),
        ("plan.js", _part("plan.js")),
    ):
        text = text.replace("{{ " + name + " }}", filling.strip())
    return text


def save(chosen: Plan, path: Path) -> Path:
    """Write the page, whole or not at all, making the folder if need be."""
    if path.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"cannot write a page to {path}: the name must end in .html")
    return put(path, as_html(chosen))


def _own_limit(chosen: Plan) -> float | None:
    """The limit on κ if it is not the usual one; an error for what the page has no field for."""
    for name, unusual in (
        ("rule", chosen.rule != "trimmed_mean"),
        ("sampled", not chosen.recommended),
        ("max_fraction", chosen.max_fraction is not None),
        ("available", chosen.available is not None),
    ):
        if unusual:
            raise ValueError(f"the page has no field for {name}: leave it out, or plot a picture")
    if chosen.clients > MOST:
        raise ValueError(f"clients={chosen.clients}: the page plans for at most {MOST}")
    usual = max(1.0, 2 * chosen.kappa_everyone)
    return None if chosen.max_kappa == usual else chosen.max_kappa


def _part(name: str) -> str:
    return files("fedro.planning").joinpath("assets", name).read_text(encoding="utf-8")
