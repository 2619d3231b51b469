"""An interactive page for a plan: one HTML file that needs no network.

``plan.js`` repeats the computations of `fedro.planning` in the browser; tests compare the two.
"""

import json
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path

from fedro.common.atomic_files import check_html_name, write_atomically
from fedro.planning.planner import Plan
from fedro.rules import DEFAULT_RULE

MAX_CLIENTS = 10**6  # up to here the page's integers are exact and its answers quick
RULES = ("nnm | trimmed_mean", "trimmed_mean", "geometric_median", "krum")  # whose κ it knows
FIELDS = ("clients", "byzantine", "rounds", "confidence", "dropout", "retries", "bound", "rule")


def as_html(chosen: Plan) -> str:
    """The text of the page. Its fields start with the values of this plan."""
    start = {name: getattr(chosen, name) for name in FIELDS}
    start["max_kappa"] = chosen.max_kappa
    _check_fields(chosen)
    text = _asset("plan.html")
    for name, filling in (
        ("version", version("fedro")),
        ("start", json.dumps(start)),
        ("plan.css", _asset("plan.css")),
        ("plan.js", _asset("plan.js")),
        ("default_rule", DEFAULT_RULE),
    ):
        text = text.replace("{{ " + name + " }}", filling.strip())
    return text


def save(chosen: Plan, path: Path) -> Path:
    """Write the page atomically, and create its folder if it does not exist."""
    check_html_name(path)
    return write_atomically(path, as_html(chosen))


def _check_fields(chosen: Plan) -> None:
    """Raise if the plan has something that the page has no field for."""
    if chosen.rule not in RULES:
        raise ValueError(
            f"rule={chosen.rule!r}: the page knows the κ of {', '.join(RULES)}; use one of them, "
            "or plot a picture"
        )
    for name, is_set in (
        ("sampled", not chosen.recommended),
        ("max_fraction", chosen.max_fraction is not None),
        ("available", chosen.available is not None),
    ):
        if is_set:
            raise ValueError(f"the page has no field for {name}: leave it out, or plot a picture")
    if chosen.clients > MAX_CLIENTS:
        raise ValueError(f"clients={chosen.clients}: the page plans for at most {MAX_CLIENTS}")


def _asset(name: str) -> str:
    return files("fedro.planning").joinpath("assets", name).read_text(encoding="utf-8")
