"""`register`, which turns a function of rows into a rule: a table entry and a typed factory."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Concatenate, ParamSpec, Protocol, cast, get_args

import numpy as np

from fedro.common.options import Options, Range
from fedro.common.registration import complete_docstring, make_factory
from fedro.common.registry import unknown
from fedro.common.stages import Stage
from fedro.rules.rule import Kappa, Rule
from fedro.rules.table import MAJORITY, RULES, Reference, RuleEntry, Validity

P = ParamSpec("P")


class RuleFactory(Protocol[P]):
    """What `register` makes of a function: ``krum(b=2, original=True)`` returns a `Rule`.

    The options are those of the function, all by keyword. `b` is the number of Byzantine rows to
    tolerate; without it, give b when the rule is called. `entry` is the rule's entry in the table.

    Example:
        >>> from fedro.rules import krum
        >>> str(krum(b=2, original=True)), krum.entry.name
        ('krum(original=True, b=2)', 'krum')
    """

    entry: RuleEntry  # what the table knows about the rule

    def kappa(self, n: int, b: int, inner: float | None = None) -> Kappa | None:
        """Return the κ proved for the default options, or None if there is no proof.

        The κ of a mixer depends on `inner`, the κ of what comes after it.
        """

    def __call__(self, b: int | None = None, *args: P.args, **options: P.kwargs) -> Rule:
        """Return a rule of one stage."""


def register(
    *,
    mixer: bool = False,
    valid: Validity = MAJORITY,
    cost: str = "",
    source: str = "",
    weighted: bool = False,
    reference: Reference = "no",
    ranges: Mapping[str, Range] | None = None,
    kappa: Callable[..., float] | None = None,
    kappa_source: str = "",
) -> Callable[[Callable[Concatenate[Any, P], Any]], RuleFactory[P]]:
    """Make a rule of the function below: it enters the table `RULES` under its own name.

    The function takes the rows (`fedro.rules.Rows`) and returns ``rows.combine(…)`` or
    ``rows.band(…)``; a mixer returns rows. Its keyword-only parameters are the options of the rule;
    each needs a type hint. The name in the module becomes a factory: ``medoid(b=2)`` is a `Rule`.

    Args:
        mixer: The function returns rows, for a rule that comes after it.
        valid: For which n and b the rule may be used, such as `MAJORITY`, `ANY` or
            ``Validity("3b < n", lambda n, b: 3 * b < n)``.
        cost: Running time, for the table of rules.
        source: Publication, for the table of rules.
        weighted: The function respects data-set sizes: it takes its weights from `Rows.mean_of`.
        reference: Whether the function uses a trusted vector: "no", "optional" or "needed".
        ranges: Option → the values that it may have, such as ``{"tau": ABOVE_ZERO}``.
        kappa: The proved coefficient, ``kappa(n, b)``, for the default options. For a mixer
            ``kappa(n, b, inner)``, where inner is the κ of what comes after it. With a parameter
            ``byzantine=None`` it also covers fewer than b Byzantine rows. The first line of its
            docstring is shown as the formula.
        kappa_source: Where the proof is.

    Returns:
        A decorator that returns a `RuleFactory`.

    Raises:
        TypeError: `valid`, a range or `kappa` is not what it has to be, or an option has no usable
            type hint.
        ValueError: The name is taken, a range is for an option that does not exist, or a default is
            out of its range.

    Example::

        @register(cost="nd log n", source="an example", ranges={"power": ABOVE_ZERO})
        def medoid(rows, *, power: float = 1.0):
            '''The row with the least sum of distances to all others.'''
            scores = (rows.sq ** (power / 2)).sum(axis=1)
            return rows.combine(np.eye(rows.n)[np.argmin(scores)])

        rule = nnm() | medoid(b=2, power=2.0)
    """
    _check_declaration(mixer, valid, reference, kappa)

    def enter(function: Callable[Concatenate[Any, P], Any]) -> RuleFactory[P]:
        name = function.__name__
        entry = RuleEntry(
            name=name,
            function=function,
            options=Options(name, function, ranges, also=("b",)),
            mixer=mixer,
            valid=valid,
            cost=cost,
            source=source,
            weighted=weighted,
            reference=reference,
            kappa=kappa,
            kappa_source=kappa_source,
        )
        RULES[name] = entry
        return cast(RuleFactory[P], _factory(entry))

    return enter


def _check_declaration(
    mixer: bool, valid: object, reference: object, kappa: Callable[..., float] | None
) -> None:
    if not isinstance(valid, Validity):
        raise TypeError(
            f"@register(valid={valid!r}): give MAJORITY (2b < n), BULYAN_SIZE (n ≥ 4b+3), ANY "
            f"(any b), or your own condition, as in Validity({Validity.example})"
        )
    try:
        valid(11, 2)
    except TypeError as error:
        raise TypeError(
            f"@register(valid={valid}): its predicate must take n and b: {error}"
        ) from None
    if reference not in get_args(Reference):
        raise ValueError(f"@register: {unknown('reference', reference, list(get_args(Reference)))}")
    if kappa is not None:
        try:
            inspect.signature(kappa).bind(*((11, 2, 1.0) if mixer else (11, 2)))
        except TypeError as error:
            wanted = "n, b and the κ of what comes after a mixer" if mixer else "n and b"
            raise TypeError(f"@register(kappa=…): kappa must take {wanted}: {error}") from None


def _factory(entry: RuleEntry) -> Any:
    """A function ``(*, b=None, options) -> Rule`` with the attributes `entry` and `kappa`."""

    def build(options: dict[str, Any]) -> Rule:
        b = options.pop("b", None)
        return Rule((Stage(entry.name, options),), b)

    def kappa(n: int, b: int, inner: float | None = None) -> Kappa | None:
        entry.check(n, b)
        proved = entry.safe_kappa
        if proved is None:
            return None
        if entry.mixer and inner is None:
            raise ValueError(f"{entry.name} is a mixer: give inner=…, the κ of what follows it")
        value = proved(n, b, inner) if entry.mixer else proved(n, b)
        return Kappa(value, entry.kappa_source) if np.isfinite(value) else None

    b = inspect.Parameter("b", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=int | None)
    factory = make_factory(
        entry, build, returns=Rule, documentation=_documentation(entry), first=[b]
    )
    factory.kappa = kappa
    return factory


def _documentation(entry: RuleEntry) -> str:
    facts = [f"Valid for {entry.valid}."]
    if entry.kappa is not None:
        facts.append(f"Proved κ: {entry.kappa_text}, where r = b/(n−2b).")
    if entry.reference != "no":
        facts.append(f"Trusted reference vector: {entry.reference}.")
    if entry.weighted:
        facts.append("Takes data-set sizes as weights.")
    if entry.cost:
        facts.append(f"Cost: {entry.cost}.")
    if entry.source:
        facts.append(f"Reference: {entry.source}.")
    use = "join it with a rule by |" if entry.mixer else "call it with a matrix of updates (n, d)"
    return complete_docstring(
        entry,
        facts,
        f"A `Rule` of one stage; {use}.",
        "    b: Number of Byzantine rows to tolerate; may also be given when the rule is called.",
    )
