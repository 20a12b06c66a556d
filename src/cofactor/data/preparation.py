"""A preparation: steps in order, settled once over all clients, repeated for every new row.

``Preparation.of("library,log1p,hvg=2000")`` is ``Preparation((LibrarySize(), Log1p(), HighlyVariable(2000)))``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from scipy import sparse

from cofactor.data.changed import changed
from cofactor.data.formats.table import listed
from cofactor.data.steps import KNOWN, Binarize, HighlyVariable, LibrarySize, Log1p, Step, TfIdf
from cofactor.engines.totals import Question, Sums
from cofactor.kinds.kind import Kind
from cofactor.kinds.numbers import CLUSTERED, GAPPED, NON_NEGATIVE
from cofactor.local import arrays
from cofactor.local.columns import SomeColumns
from cofactor.privacy.errors import PrivacyError
from cofactor.types import Array, CofactorError, Data, DataError, unknown

Ask = Callable[[Question, Sequence[Data], int], Sums]
"""(question, data of the clients here, features) -> the answers of all clients, added up."""
TEXT = "prepare"
"""The array that holds a preparation's text in a file; ``prepare.2.keeps`` is what its third step knows."""
COUNTING = ("exact-beta",)
"""Methods whose loss is for counts."""
LOOK, COUNTS, EMPTY, SMALL, LOGGED = 500, 10, 0.2, 0.1, 15.0
"""Rows that are looked at for a hint; from which value and which share of zeros on numbers look like counts, of
which a quarter is at most such a part of the largest (grey levels of pictures are more even); and below which they
look like logarithms."""
UNSIGNED = (LibrarySize, Log1p, TfIdf)
"""Steps that mean nothing for values below 0."""


@dataclass(frozen=True, eq=False)
class Preparation:
    """Steps that are done with every row, in order."""

    steps: tuple[Step, ...] = ()

    @classmethod
    def of(cls, given: Any, kind: Kind = NON_NEGATIVE, *, private: bool = False) -> Preparation:
        """Return a preparation from steps, from a text such as ``library,log1p,hvg=2000:cell_ranger``, or from one.

        Refused are steps where cells were not observed, which they would take for numbers, and in a ``private`` run
        those that would release sums over rows without noise.
        """
        made = given if isinstance(given, Preparation) else cls(_steps(given))
        if kind is GAPPED and made.steps:
            raise CofactorError(
                f"prepare: expected none where cells, NaN, were not observed, found {made.text}; do such steps before "
                "the fit, on the cells that were."
            )
        if private and (asking := [step.word for step in made.steps if step.asks]):
            raise PrivacyError(
                f"prepare: {asking[0]} is refused in a private run: it needs sums over all rows, which would leave "
                "without noise and outside the budget. Prepare with public numbers, or leave it out; steps of "
                "single rows (library, log1p, binarize) are fine."
            )
        return made

    def __bool__(self) -> bool:
        return bool(self.steps)

    @property
    def text(self) -> str:
        """The steps as they are written on the command line."""
        return ",".join(step.text for step in self.steps)

    @property
    def takes(self) -> Kind:
        """What values may be before the first step: whole rows of any numbers, unless a step wants them >= 0."""
        return NON_NEGATIVE if any(isinstance(step, UNSIGNED) for step in self.steps) else CLUSTERED

    @property
    def questions(self) -> int:
        """How many rounds of sums it takes."""
        return sum(step.asks for step in self.steps)

    def settle(self, Xs: Sequence[Data], n_features: int, ask: Ask) -> tuple[Preparation, list[Data]]:
        """Carry the steps out over all clients; return the preparation with what it learned, and the data after it."""
        done: list[Step] = []
        data = list(Xs)
        for step in self.steps:
            made = Asked(step).settled(ask(Asked(step), data, n_features)) if step.asks else step
            if made.keeps is not None and not made.keeps.any():
                raise DataError(f"prepare: expected {step.word} to keep some features, found that none varies.")
            data = [_applied(made, X) for X in data]
            n_features = n_features if made.keeps is None else int(made.keeps.sum())
            done.append(made)
        return replace(self, steps=tuple(done)), data

    def __call__(self, X: Data) -> Data:
        """Return rows after all steps; the preparation must be settled."""
        for step in self.steps:
            X = _applied(step, X)
        return X

    def names(self, names: Sequence[str] | None) -> list[str] | None:
        """Return the names of the features that are left."""
        if names is None:
            return None
        left = np.asarray(names, dtype=object)
        for step in self.steps:
            left = left if step.keeps is None else left[step.keeps]
        return [str(name) for name in left]

    def width(self, n_features: int) -> int:
        """Return how many of so many features are left."""
        for step in self.steps:
            n_features = n_features if step.keeps is None else int(step.keeps.sum())
        return n_features

    def places(self, index: Array) -> Array:
        """Return where features at ``index`` stand among those that are left; others are left out."""
        for step in self.steps:
            if step.keeps is not None:
                index = (np.cumsum(step.keeps) - 1)[index[step.keeps[index]]]
        return index

    def arrays(self) -> dict[str, Array]:
        """Return all that a reader needs to repeat it, as arrays; nothing where there are no steps."""
        if not self.steps:
            return {}
        known = {
            f"{TEXT}.{i}.{f.name}": value
            for i, step in enumerate(self.steps)
            for f in fields(step)  # type: ignore[arg-type]
            if isinstance(value := getattr(step, f.name), np.ndarray)
        }
        return {TEXT: np.array(self.text), **known}

    @classmethod
    def from_arrays(cls, found: Mapping[str, Array]) -> Preparation:
        """Return the preparation that :meth:`arrays` wrote; one without steps where there is none."""
        if TEXT not in found:
            return cls()
        steps = []
        for i, step in enumerate(cls.of(str(found[TEXT])).steps):
            begin = f"{TEXT}.{i}."
            own = {name.removeprefix(begin): a for name, a in found.items() if name.startswith(begin)}
            steps.append(replace(step, **own))  # type: ignore[type-var]
        return cls(tuple(steps))


@dataclass(frozen=True, eq=False)
class Asked:
    """The question of a step, with its word before the name of every array."""

    step: Step

    def schema(self, n_features: int) -> dict[str, tuple[int, ...]]:
        """Name and shape of the sums."""
        return {f"{self.step.word} {name}": shape for name, shape in self.step.schema(n_features).items()}

    def answer(self, data: Data) -> dict[str, Array]:
        """Client: the sums of its own rows."""
        return {f"{self.step.word} {name}": a for name, a in self.step.answer(data).items()}

    def settled(self, sums: Sums) -> Step:
        """Server: the step with what it learned."""
        return self.step.settled({name.removeprefix(f"{self.step.word} "): a for name, a in sums.items()})


def _applied(step: Step, X: Data) -> Data:
    """Carry out one step; of a client that lacks features, on those that it has."""
    if not isinstance(X, SomeColumns):
        # what is no number after it is refused; a warning, or an error where numpy is told to raise, tells of a row
        with np.errstate(all="ignore"):
            return changed(X, step.apply, None if step.keeps is None else int(step.keeps.sum()))
    own = step.on(X.index)
    inner = _applied(own, X.inner)
    if step.keeps is None or own.keeps is None:
        return SomeColumns(inner, X.index, X.n_features)
    place = np.cumsum(step.keeps) - 1
    return SomeColumns(inner, place[X.index[own.keeps]], int(step.keeps.sum()))


def _steps(given: Any) -> tuple[Step, ...]:
    if given is None or isinstance(given, str):
        return tuple(map(_step, listed(given)))
    steps = tuple(given) if isinstance(given, list | tuple) else (given,)
    for step in steps:
        if type(step) not in KNOWN.values():
            known = ", ".join(kind.__name__ for kind in KNOWN.values())
            raise CofactorError(f"prepare: expected steps ({known}) or their text, found {step!r}.")
    return steps


def _step(text: str) -> Step:
    """Read one step: a word, or a word with its number, as ``hvg=2000`` or ``hvg=2000:cell_ranger``."""
    word, _, value = text.partition("=")
    if word not in KNOWN:
        raise unknown("step of a preparation", word, KNOWN)
    kind = KNOWN[word]
    if not value:
        return kind()
    number, _, flavour = value.partition(":")
    if kind not in (LibrarySize, HighlyVariable, Binarize) or (flavour and kind is not HighlyVariable):
        raise CofactorError(
            f"prepare: expected {word} without {'a flavour' if flavour else 'a number'}, found {text!r}."
        )
    try:
        found = int(number) if kind is HighlyVariable else float(number)
    except ValueError:
        raise CofactorError(f"prepare: expected a number after {word}=, found {number!r}.") from None
    return kind(found, flavour) if flavour else kind(found)


def hint(Xs: Sequence[Data], clients: Sequence[Any], preparation: Preparation, method: Any = None) -> str:
    """Say what is unusual about the numbers of clients for their preparation; nothing where all looks well.

    Clients are named where others look well, as one file of counts beside normalized ones.
    A ``method`` whose loss is for counts takes them as they are.
    """
    if method in COUNTING:
        return ""
    said = {client: found for client, X in zip(clients, Xs, strict=True) if (found := _unusual(X, preparation))}
    if not said:
        return ""
    (first, found), others = next(iter(said.items())), len(said) - 1
    if len(said) == len(Xs):
        return found
    more = f" and {others} more" if others else ""
    return f"client {first}{more} of {len(Xs)}: {found}"


def _unusual(X: Data, preparation: Preparation) -> str:
    """Say what is unusual about the numbers of one client, in one sentence."""
    values, zeros = _some(X)
    if not values.size:
        return ""
    whole = bool(np.all(values == np.round(values)))
    counts = whole and values.max() >= COUNTS and zeros >= EMPTY and np.quantile(values, 0.25) <= SMALL * values.max()
    if not preparation.steps and counts:
        return (
            f"the values look like raw counts (whole numbers up to {values.max():g}, {zeros:.0%} zeros), of which rows "
            "with many counts decide alone. prepare='library,log1p' (cells) or prepare='tfidf' (documents) is usual; "
            "beta_loss='kullback-leibler' (--method exact-beta) is a loss for counts as they are."
        )
    first = preparation.steps[0] if preparation.steps else None
    if isinstance(first, LibrarySize) and not whole:
        return (
            "prepare: library expects counts, and the values are no whole numbers: were they normalized, or "
            "logarithms taken, before?"
        )
    if isinstance(first, Log1p) and not whole and values.max() < LOGGED:
        return (
            f"prepare: log1p expects counts or normalized counts, and no value is above {values.max():.3g}: were "
            "logarithms taken before? Then they would be taken twice."
        )
    return ""


def _some(X: Data) -> tuple[Array, float]:
    """Return values above 0 of the first rows, and the share of zeros."""
    if isinstance(X, SomeColumns):
        return _some(X.inner)
    part = arrays.row_block(X, slice(0, min(LOOK, X.shape[0])))
    stored = part.data if sparse.issparse(part) else np.asarray(part).ravel()
    values = stored[stored > 0]
    return values, 1 - values.size / max(int(np.prod(part.shape)), 1)
