"""A rule: mixers and a last stage, joined by ``|``, with one b for all of them."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedro import kernels
from fedro.common.checks import count
from fedro.common.registry import Stage, load, parse_stage, parse_stages
from fedro.rules.kappa import pipeline_kappa
from fedro.rules.rows import Dropped, Rows, Source
from fedro.rules.table import RULES, Entry

Progress = Callable[[int, int], None]  # (columns done, columns in all), for each pass


class Kappa(float):
    """A proved coefficient that knows where its proof is."""

    source: str

    def __new__(cls, value: float, source: str) -> "Kappa":
        """A float with a source."""
        number = super().__new__(cls, value)
        number.source = source
        return number


@dataclass(frozen=True)
class Rule:
    """A robust rule: a matrix of updates (n, d) in, one update (d,) out.

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
        """Join: the rows of the left go through the right."""
        if not isinstance(other, Rule):
            return NotImplemented
        if self.b is not None and other.b is not None and self.b != other.b:
            raise ValueError(f"'{self} | {other}': one b for the whole pipeline, not two")
        return Rule(self.stages + other.stages, other.b if self.b is None else self.b)

    def __str__(self) -> str:
        texts = [str(stage) for stage in self.stages]
        if self.b is not None:
            last = self.stages[-1]
            texts[-1] = str(Stage(last.name, {**last.options, "b": self.b}))
        return " | ".join(texts)

    def __hash__(self) -> int:
        return hash(str(self))

    @property
    def entries(self) -> list[Entry]:
        """The table's entries of the stages."""
        return [RULES[stage.name] for stage in self.stages]

    def kappa(self, n: int, b: int | None = None) -> Kappa | None:
        """The proved robustness coefficient for n rows, or None where no proof is known."""
        n, b = count("n", n, 1), self._tolerated(b)
        for entry in self.entries:
            entry.check(n, b)
        last = self.entries[-1]
        if last.mixer:
            raise ValueError(self._unfinished())
        try:
            value = pipeline_kappa(self.stages)(n, b)
        except ValueError:
            return None
        proofs = [entry.proof for entry in self.entries]
        sources = [f"{p.source} ({e.name})" for p, e in zip(proofs, self.entries, strict=True) if p]
        return Kappa(value, "; ".join(sources)) if np.isfinite(value) else None

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
        """Aggregate: the same kind and dtype as `updates` comes out, which is never modified.

        b overrides the rule's own; `rows` picks some rows, without a copy of them. `weights` are
        data-set sizes, `reference` is a trusted vector, `seed` is for rules that draw at random:
        keep it from the clients.
        """
        picked = kernels.picked(updates, rows)
        n, b = picked.size, self._tolerated(b)
        self._check(n, b, weights, reference)
        source = Source(updates, picked, b, _vector(reference, updates))
        source.progress = progress
        return self.on(source, seed=seed, sizes=None if weights is None else _sizes(weights, n, b))

    def on(self, source: Source, *, seed: int = 0, sizes: NDArray[np.float64] | None = None) -> Any:
        """What the last stage makes of a source's rows, without those that must be dropped."""
        n, b = len(source.picked), source.b
        while True:
            try:
                return self._run(Rows(source, seed=count("seed", seed, 0), sizes=sizes))
            except Dropped as dropped:
                missing = int((~dropped.keep).sum())
                if missing > source.b:
                    raise ValueError(
                        f"more than b={b} of {n} rows hold NaN, Inf or numbers too large to "
                        "square: no robust answer exists"
                    ) from None
                sizes = None if sizes is None else sizes[dropped.keep]
                source = source.keep(dropped.keep)

    def _run(self, rows: Rows) -> Any:
        result: Any = rows
        for stage, entry in zip(self.stages, self.entries, strict=True):
            entry.check(result.n, result.b)
            result = entry.function(result, **stage.options)
        return result

    def _tolerated(self, b: int | None) -> int:
        if b is None and self.b is None and all(e.valid == "any b" for e in self.entries):
            return 0
        given = self.b if b is None else b
        if given is None:
            raise ValueError(
                f"'{self}' needs b, the number of bad rows to tolerate: parse_rule(…, b=…)"
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


def parse_rule(text: str, b: int | None = None) -> Rule:
    """Read ``"nnm | trimmed_mean"``, ``"krum(original=True)"`` or ``"nnm | my_module:medoid"``."""
    if not isinstance(text, str):
        raise ValueError(f"a rule is a text like 'nnm | trimmed_mean', not {text!r}")
    rule: Rule | None = None
    for name, options in _stages(text):
        own = options.pop("b", None)
        part = Rule((Stage(name, options),), own)
        rule = part if rule is None else rule | part
    assert rule is not None
    if b is not None and rule.b is not None and rule.b != b:
        raise ValueError(f"b={b}, but the rule {text!r} has b={rule.b}: give one of the two")
    return rule if b is None else replace(rule, b=b)


def _stages(text: str) -> list[Stage]:
    """The stages of a text; one of your own is imported, which puts it into the table."""
    if ":" not in text:
        return parse_stages(text)
    stages = [parse_stage("rule", part) for part in text.split("|")]
    return [Stage(_own(name) if ":" in name else name, options) for name, options in stages]


def _own(text: str) -> str:
    """The name in the table of ``"my_module:medoid"``."""
    if not all(part.isidentifier() for part in text.rpartition(":")[0].split(".")):
        raise ValueError(f"{text!r}: write a rule of your own as 'my_module:my_rule'")
    found = load(text)
    if not isinstance(found, Entry):
        raise ValueError(f"{text!r} is no rule: put @register(…) above it")
    return found.name


def factory(entry: Entry) -> Callable[..., Rule]:
    """What makes a rule of one stage in Python: ``krum(b=2, original=True)``."""

    def make(*, b: int | None = None, **options: Any) -> Rule:
        plain = {k: v.item() if isinstance(v, np.generic) else v for k, v in options.items()}
        return Rule((Stage(entry.name, plain),), b)

    make.__name__, make.__doc__ = entry.name, entry.function.__doc__
    return make


def _vector(reference: Any, updates: Any) -> Any:
    """The reference as the kind of the updates; it must be finite, since it is trusted."""
    if reference is None:
        return None
    if hasattr(reference, "detach"):  # a tensor, maybe one that records gradients
        reference = reference.detach().cpu().double().numpy()
    vector = np.asarray(reference, dtype=np.float64)
    d = updates.shape[1]
    if vector.shape != (d,):
        raise ValueError(f"reference has shape {vector.shape}: must be ({d},), as the updates have")
    if not np.isfinite(vector).all():
        raise ValueError("reference holds NaN or Inf: a trusted vector must be finite")
    return kernels.matrix(updates).like(vector)


def _sizes(weights: ArrayLike, n: int, b: int) -> NDArray[np.float64]:
    """Data-set sizes, which bad clients can lie about: b of them must not outweigh the rest."""
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
