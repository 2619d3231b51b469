"""A rule is a pipeline: mixers and a last stage, joined by ``|``, with one b for all of them."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedro import kernels
from fedro.common.checks import count
from fedro.common.stages import Stage, load, parse_stage, parse_stages
from fedro.rules.kappa import with_fewer
from fedro.rules.rows import AffineRows, DroppedRows, NoAggregateError, RowSource
from fedro.rules.table import ANY, RULES, RuleEntry

Progress = Callable[[int, int], None]  # (columns done, columns in all), for each pass

DEFAULT_RULE = "nnm | trimmed_mean"  # of plans, experiments and the Flower strategy


class Kappa(float):
    """A proved robustness coefficient: a float whose `source` says where the proof is.

    Example:
        >>> kappa = parse_rule("krum", b=2).kappa(9)
        >>> round(kappa, 2), kappa.source
        (8.4, 'Allouah et al. 2023 (krum)')
    """

    source: str

    def __new__(cls, value: float, source: str) -> "Kappa":
        """Return a float with a source."""
        number = super().__new__(cls, value)
        number.source = source
        return number

    def __getnewargs__(self) -> tuple[float, str]:  # type: ignore[override]
        """Return the arguments of `__new__`, for copies and pickles."""
        return float(self), self.source


class NoProofError(ValueError):
    """No κ is proved for a rule, or for the options that it has."""


class KappaFormula(Protocol):
    """κ as a function of n rows, b tolerated ones and, if given, the truly Byzantine ones."""

    def __call__(self, n: int, b: int, byzantine: int | None = None) -> float:
        """Return κ, or infinity where the rule may not be used."""


@dataclass(frozen=True)
class Rule:
    """A robust rule: it maps a matrix of updates (n, d) to one update (d,).

    Make one with `parse_rule`, or with the factories in `fedro.rules` joined by ``|``. Rules are
    immutable, compare by value, and ``parse_rule(str(rule))`` returns an equal one.

    Args:
        stages: Name and options of each stage; all but the last are mixers.
        b: Number of Byzantine rows to tolerate, or None to give it in each call.

    Raises:
        ValueError: A name or an option is unknown or not allowed, or a stage before the last one is
            not a mixer.

    Example:
        >>> import numpy as np
        >>> rule = parse_rule("nnm | trimmed_mean", b=1)
        >>> rule(np.array([[1.0], [2.0], [3.0], [1e9]]))
        array([2.])
    """

    stages: tuple[Stage, ...]
    b: int | None = None

    def __post_init__(self) -> None:
        if not self.stages:
            raise ValueError("a rule has at least one stage: parse_rule('trimmed_mean', b=…)")
        if self.b is not None:
            object.__setattr__(self, "b", count("b", self.b, 0))
        for stage in self.stages:
            RULES[stage.name].check_options(stage.options)
        for stage in self.stages[:-1]:
            if not RULES[stage.name].mixer:
                raise ValueError(f"rule '{self}': {stage.name} gives one vector, so it comes last")

    def __or__(self, other: "Rule") -> "Rule":
        """Join two rules: the rows that the left one makes go through the right one."""
        if not isinstance(other, Rule):
            return NotImplemented
        if self.b is not None and other.b is not None and self.b != other.b:
            raise ValueError(f"'{self} | {other}': one b for the whole pipeline, not two")
        return Rule(self.stages + other.stages, other.b if self.b is None else self.b)

    def __str__(self) -> str:
        stages = [Stage(RULES[name].path, dict(options)) for name, options in self.stages]
        if self.b is not None:
            stages[-1].options["b"] = self.b
        return " | ".join(str(stage) for stage in stages)

    def __reduce__(self) -> tuple[Callable[[str], "Rule"], tuple[str]]:
        """Copy and pickle as text, so that another process can load a user's own stages."""
        return parse_rule, (str(self),)

    def __hash__(self) -> int:
        return hash(str(self))

    @property
    def complete(self) -> "Rule":
        """The same rule with all options written out, also those with their defaults."""
        stages = [
            Stage(stage.name, {**entry.options.defaults(), **stage.options})
            for stage, entry in zip(self.stages, self.entries, strict=True)
        ]
        return Rule(tuple(stages), self.b)

    @property
    def entries(self) -> list[RuleEntry]:
        """The entries of the stages in the table `RULES`."""
        return [RULES[stage.name] for stage in self.stages]

    def kappa(self, n: int, b: int | None = None, *, byzantine: int | None = None) -> Kappa | None:
        """Return the proved robustness coefficient κ for n rows.

        Args:
            n: Number of rows.
            b: Number of Byzantine rows to tolerate, if not the rule's own b.
            byzantine: Number of rows that are Byzantine, at most b; by default b. With fewer of
                them, κ is smaller.

        Returns:
            A float with the `source` of the proof, or None if no finite κ is proved.

        Raises:
            ValueError: The rule cannot be used with these n and b, or ends in a mixer.
        """
        n, b = count("n", n, 1), self._tolerated(b)
        if byzantine is not None:
            byzantine = count("byzantine", byzantine, 0, b, "the tolerated rows")
        for entry in self.entries:
            entry.check(n, b)
        if self.entries[-1].mixer:
            raise ValueError(self._unfinished())
        try:
            formula = self.kappa_formula()
        except NoProofError:
            return None
        value = formula(n, b, byzantine)
        sources = [f"{entry.kappa_source} ({entry.name})" for entry in self.entries]
        return Kappa(value, "; ".join(sources)) if np.isfinite(value) else None

    def kappa_formula(self) -> "KappaFormula":
        """Return κ as a function of n, b and, if given, the true number of Byzantine rows.

        It is infinite where the rule may not be used. The κ of a pipeline is computed from right to
        left: each mixer turns the κ of what comes after it into its own.

        Raises:
            NoProofError: No κ is proved for this rule.
            ValueError: The rule ends in a mixer.
        """
        if self.entries[-1].mixer:
            raise ValueError(self._unfinished())
        entries = self.entries
        *mixers, final = [
            _proved(entry, stage) for entry, stage in zip(self.entries, self.stages, strict=True)
        ]
        exact = all(entry.kappa_takes_byzantine for entry in entries)

        def chained(n: int, b: int, **fewer: int) -> float:
            value = final(n, b, **fewer)
            for mixer in reversed(mixers):
                value = mixer(n, b, value, **fewer)
            return value

        def kappa(n: int, b: int, byzantine: int | None = None) -> float:
            if not all(entry.allows(n, b) for entry in entries):
                return math.inf
            worst = chained(n, b)
            if byzantine is None or byzantine == b or math.isinf(worst):
                return worst
            general = with_fewer(worst, n, b, byzantine)
            return min(general, chained(n, b, byzantine=byzantine)) if exact else general

        return kappa

    def __call__(
        self,
        updates: Any,
        *,
        b: int | None = None,
        rows: ArrayLike | None = None,
        weights: ArrayLike | None = None,
        reference: Any = None,
        seed: int = 0,
        progress: Progress | None = None,
    ) -> Any:
        """Aggregate the updates.

        Args:
            updates: Matrix (n, d) of floats: a NumPy array, a torch tensor or a memory map. It is
                never modified.
            b: Number of Byzantine rows to tolerate, if not the rule's own b.
            rows: Positions of the rows to use; by default all. Nothing is copied.
            weights: Data-set size of each row, for rules that average rows.
            reference: Trusted vector (d,), for rules that compare the rows with one.
            seed: For rules that draw at random. Keep it from the clients.
            progress: Called with (columns done, columns in all) in each pass over the data.

        Returns:
            The aggregate (d,), of the same kind and dtype as `updates`.

        Raises:
            NoAggregateError: n and b do not suit the rule, or more than b rows or the reference are
                not finite.
            ValueError: An argument is missing or has the wrong shape.
            UserCodeError: A stage of your own failed.
            TypeError: `updates` is not a matrix of floats.
        """
        picked = kernels.picked(updates, rows)
        n, b = picked.size, self._tolerated(b)
        self._check(n, b, weights, reference)
        source = RowSource(updates, picked, b, _vector(reference, updates))
        source.progress = progress
        sizes = None if weights is None else _sizes(weights, n, b)
        result = self.aggregate(source, seed=seed, sizes=sizes)
        with self.entries[-1].user_code("rule"):
            _check_vector(result, updates)
        return result

    def aggregate(
        self, source: RowSource, *, seed: int = 0, sizes: NDArray[np.float64] | None = None
    ) -> Any:
        """Return what the last stage makes of a source's rows.

        A stage that meets rows which cannot be honest raises `DroppedRows`. All stages then start
        again without these rows.
        """
        n, b = len(source.picked), source.b
        while True:
            try:
                return self._run(AffineRows(source, seed=count("seed", seed, 0), sizes=sizes))
            except DroppedRows as dropped:
                missing = int((~dropped.keep).sum())
                if missing > source.b:
                    raise NoAggregateError(
                        f"more than b={b} of {n} rows hold NaN, Inf or numbers too large to "
                        "square: no robust answer exists"
                    ) from None
                sizes = None if sizes is None else sizes[dropped.keep]
                source = source.keep(dropped.keep)

    def _run(self, rows: AffineRows) -> Any:
        result: Any = rows
        for stage, entry in zip(self.stages, self.entries, strict=True):
            entry.check(result.n, result.b)
            with entry.user_code("rule", DroppedRows, NoAggregateError):
                result = entry.function(result, **stage.options)
                if entry.mixer and not isinstance(result, AffineRows):
                    kind = type(result).__name__
                    raise TypeError(f"a mixer returns rows, as rows.averaged(…) does, not {kind}")
        return result

    def _tolerated(self, b: int | None) -> int:
        if b is None and self.b is None and all(e.valid == ANY for e in self.entries):
            return 0
        given = self.b if b is None else b
        if given is None:
            raise ValueError(
                f"'{self}' needs b, the number of Byzantine rows to tolerate: parse_rule(…, b=…)"
            )
        return count("b", given, 0)

    def _check(self, n: int, b: int, weights: object, reference: object) -> None:
        last = self.entries[-1]
        if last.mixer:
            raise ValueError(self._unfinished())
        for entry in self.entries[:1]:
            entry.check(n, b)
        needs = [e for e in self.entries if e.reference == "needed"]
        if needs and reference is None:
            raise ValueError(f"{needs[0].name} needs reference=…, a vector that can be trusted")
        if reference is not None and all(e.reference == "no" for e in self.entries):
            known = ", ".join(name for name, e in RULES.items() if e.reference != "no")
            raise ValueError(f"'{self}' takes no reference; these do: {known}")
        if weights is not None and (len(self.stages) > 1 or not last.weighted):
            known = ", ".join(name for name, e in RULES.items() if e.weighted)
            raise ValueError(f"'{self}' takes no weights; these do, on their own: {known}")

    def _unfinished(self) -> str:
        return f"'{self}' ends in a mixer: add a rule, as in '{self} | trimmed_mean'"


def _proved(entry: RuleEntry, stage: Stage) -> Callable[..., float]:
    """The formula of κ for a stage; proofs are for the default options only."""
    if entry.kappa is None:
        known = ", ".join(name for name, other in RULES.items() if other.kappa is not None)
        raise NoProofError(f"no κ is proved for {entry.name}; these have one: {known}")
    changed = [key for key, value in stage.options.items() if value != entry.options[key].default]
    if changed:
        raise NoProofError(f"no κ is proved for {entry.name} with {', '.join(changed)} set")
    assert entry.safe_kappa is not None
    return entry.safe_kappa


def parse_rule(rule: str | Rule, b: int | None = None) -> Rule:
    """Make a rule from a text, or give a rule its b.

    Args:
        rule: Names joined by ``|``, with options in brackets: ``"nnm | trimmed_mean"``,
            ``"krum(original=True)"``, or ``"nnm | my_module:medoid"`` for a rule of your own, whose
            module is imported. A `Rule` is returned as it is.
        b: Number of Byzantine rows to tolerate; it may also be an option in the text, or be given
            when the rule is called.

    Returns:
        The rule.

    Raises:
        ValueError: The text cannot be read, a name or an option is unknown or not allowed, or two
            different b are given.

    Example:
        >>> rule = parse_rule("nnm | krum(original=True)", b=2)
        >>> str(rule)
        'nnm | krum(original=True, b=2)'
        >>> parse_rule(rule) == rule
        True
    """
    parsed = rule if isinstance(rule, Rule) else _parsed(rule)
    if b is not None and parsed.b is not None and parsed.b != b:
        raise ValueError(f"b={b}, but the rule '{rule}' has b={parsed.b}: give one of the two")
    return parsed if b is None else replace(parsed, b=b)


def _parsed(text: str) -> Rule:
    if isinstance(getattr(text, "entry", None), RuleEntry):
        raise ValueError(f"{text.entry.name} makes rules: call it, as in {text.entry.name}(b=…)")  # type: ignore[attr-defined]
    if not isinstance(text, str):
        raise ValueError(f"a rule is a text like 'nnm | trimmed_mean' or a Rule, not {text!r}")
    rule: Rule | None = None
    for name, options in _stages(text):
        own = options.pop("b", None)
        part = Rule((Stage(name, options),), own)
        rule = part if rule is None else rule | part
    assert rule is not None
    return rule


def _stages(text: str) -> list[Stage]:
    """The stages of a text; ``my_module:name`` is imported, which puts it into the table."""
    if ":" not in text:
        return parse_stages(text)
    stages = [parse_stage("rule", part) for part in text.split("|")]
    return [Stage(_imported(name) if ":" in name else name, options) for name, options in stages]


def _imported(text: str) -> str:
    """The name in the table of ``"my_module:medoid"``."""
    if not all(part.isidentifier() for part in text.rpartition(":")[0].split(".")):
        raise ValueError(f"{text!r}: write a rule of your own as 'my_module:my_rule'")
    entry = getattr(load(text), "entry", None)
    if not isinstance(entry, RuleEntry):
        raise ValueError(f"{text!r} is no rule: put @register(…) above it")
    return entry.name


def _check_vector(result: Any, updates: Any) -> None:
    """Raise unless a rule has returned one vector (d,) of the same kind as the updates."""
    same_kind = hasattr(result, "detach") == hasattr(updates, "detach")  # tensors or arrays
    if not same_kind or getattr(result, "shape", None) != updates.shape[1:]:
        shape = getattr(result, "shape", None)
        given = type(result).__name__ + ("" if shape is None else f" of shape {tuple(shape)}")
        raise TypeError(
            f"a rule returns one vector ({updates.shape[1]},), as rows.combine(…) and "
            f"rows.band(…) do, not {given}"
        )


def _vector(reference: Any, updates: Any) -> Any:
    """The reference, converted to the kind of the updates; it is trusted, so it must be finite."""
    if reference is None:
        return None
    if hasattr(reference, "detach"):  # a tensor, maybe one that records gradients
        reference = reference.detach().cpu().double().numpy()
    vector = np.asarray(reference, dtype=np.float64)
    d = updates.shape[1]
    if vector.shape != (d,):
        raise ValueError(f"reference has shape {vector.shape}: must be ({d},), as the updates have")
    if not np.isfinite(vector).all():
        raise NoAggregateError("reference holds NaN or Inf: a trusted vector must be finite")
    return kernels.matrix(updates).like(vector)


def _sizes(weights: ArrayLike, n: int, b: int) -> NDArray[np.float64]:
    """Checked data-set sizes; clients can lie, so b of them must not outweigh the rest."""
    sizes = np.asarray(weights, dtype=np.float64)
    if sizes.shape != (n,):
        raise ValueError(f"weights have shape {sizes.shape}: must be ({n},), one for each row")
    if not (np.isfinite(sizes).all() and (sizes > 0).all()):
        raise ValueError("weights must be finite and above 0: leave rows without data out")
    sizes = sizes / sizes.max()
    heaviest = float(np.sort(sizes)[n - b :].sum())
    if 2 * heaviest >= sizes.sum() and b > 0:
        raise ValueError(
            f"the {b} heaviest rows hold {heaviest / sizes.sum():.0%} of the weight: they must "
            "hold less than half; cap the weights, or give none"
        )
    return np.asarray(sizes)
