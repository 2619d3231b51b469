"""An interactive page for a plan: one HTML file that needs no network.

``plan.js`` repeats the computations of `fedro.planning` in the browser; tests compare the two.
"""

import json
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path

from fedro.common.atomic_files import check_html_name, write_atomically
from fedro.planning.planner import Plan

MAX_CLIENTS = 10**6  # up to here the page's integers are exact and its answers quick
FIELDS = ("clients", "byzantine", "rounds", "confidence", "dropout", "retries", "bound")


def as_html(chosen: Plan) -> str:
    """The text of the page. Its fields start with the values of this plan."""
    start = {name: getattr(chosen, name) for name in FIELDS}
    start["max_kappa"] = _custom_limit(chosen)
    text = _asset("plan.html")
    for name, filling in (
        ("version", version("fedro")),
        ("start", json.dumps(start)),
        ("plan.css", _asset("plan.css")),
        ("plan.js", _asset("plan.js")),
    ):
        text = text.replace("{{ " + name + " }}", filling.strip())
    return text


def save(chosen: Plan, path: Path) -> Path:
    """Write the page atomically, and create its folder if it does not exist."""
    check_html_name(path)
    return write_atomically(path, as_html(chosen))


def _custom_limit(chosen: Plan) -> float | None:
    """The limit on κ if it is not the default. Raises for what the page has no field for."""
    for name, is_set in (
        ("rule", chosen.rule != "trimmed_mean"),
        ("sampled", not chosen.recommended),
        ("max_fraction", chosen.max_fraction is not None),
        ("available", chosen.available is not None),
    ):
        if is_set:
            raise ValueError(f"the page has no field for {name}: leave it out, or plot a picture")
    if chosen.clients > MAX_CLIENTS:
        raise ValueError(f"clients={chosen.clients}: the page plans for at most {MAX_CLIENTS}")
    default = max(1.0, 2 * chosen.kappa_everyone)
    return None if chosen.max_kappa == default else chosen.max_kappa


def _asset(name: str) -> str:
    return files("fedro.planning").joinpath("assets", name).read_text(encoding="utf-8")
