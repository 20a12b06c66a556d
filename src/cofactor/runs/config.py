"""The configuration of a run: what ``cofactor fit`` takes, and the file that reproduces it."""

from __future__ import annotations

import difflib
import inspect
import json
import re
import tomllib
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from cofactor.methods import catalog
from cofactor.methods.private import NONE
from cofactor.privacy.errors import ParameterError, PrivacyError
from cofactor.privacy.plan import Privacy
from cofactor.types import CofactorError

ROUNDS = 50
BY = ("iid", "dirichlet", "sorted", "rows")
ENGINES = ("inline", "mpi")
FEATURES = ("same", "intersection", "union", "position")
HOLDOUTS = ("time", "random", "user")
DUPLICATES = ("error", "mean")
NOT_FOR_RATINGS = {
    "engine": "inline",
    "features": "same",
    "layer": None,
    "image": None,
    "split": None,
    "group_by": None,
    "secure": False,
}
"""Settings without a meaning for ratings, and what they are then."""


@dataclass(frozen=True)
class Config:
    """Everything that decides a run; ``why`` says why a method was chosen. Paths become absolute in a run folder."""

    inputs: list[str]
    rank: int
    method: str = "exact"
    boolean: bool = False
    rounds: int = None  # type: ignore[assignment] # settled below: by the method, or 50
    tol: float = 1e-4
    seed: int = 0
    participation: float = 1.0
    engine: str = "inline"
    features: str = "same"
    layer: str | None = None
    group_by: str | None = None
    split: int | None = None
    by: str = "iid"
    label: str | None = None
    alpha: float = 0.5
    image: str | None = None
    ratings: bool = False
    holdout: str | None = None
    holdout_share: float = 0.2
    duplicates: str = "error"
    epsilon: float | None = None
    delta: float | None = None
    unit: str | None = None
    clip: float | None = None
    insecure_noise_seed: int | None = None
    secure: bool = False
    why: str = ""
    options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Settle what follows from the rest, and refuse what cannot be run before anything is read."""
        if self.boolean and self.method in ("exact", "auto"):
            object.__setattr__(self, "method", catalog.names("boolean")[0])
        if self.ratings and self.method == "exact":
            object.__setattr__(self, "method", catalog.names("ratings")[0])
        if self.epsilon is not None and self.method == "exact" and not self.options:
            object.__setattr__(self, "method", catalog.names("private")[0])
        object.__setattr__(self, "boolean", self.method in catalog.names("boolean"))
        if self.rounds is None:
            object.__setattr__(self, "rounds", own_rounds(self.method))
        self._check_privacy()
        if self.blocked:
            self._check_blocks()
        self._check_ratings()
        if not self.inputs:
            raise CofactorError("expected at least one input file, found none.")
        if self.group_by and self.split:
            raise CofactorError("expected either --group-by or --split, found both.")
        if (self.group_by or self.split) and len(self.inputs) > 1:
            raise CofactorError(
                f"--group-by and --split make clients of one file; found {len(self.inputs)} files, which are clients."
            )
        for name, known in (("by", BY), ("features", FEATURES), ("engine", ENGINES), ("duplicates", DUPLICATES)):
            if getattr(self, name) not in known:
                raise CofactorError(f"{name}: expected one of {', '.join(known)}; found {getattr(self, name)!r}.")
        if self.image and not re.fullmatch(r"\d+x\d+", self.image):
            raise CofactorError(f"image: expected height x width of a picture, as 28x28; found {self.image!r}.")
        if self.split and self.by in ("dirichlet", "sorted") and not self.label:
            raise CofactorError(f"--by {self.by} spreads rows by a label; name its column with --label.")

    def _check_privacy(self) -> None:
        """Refuse half a budget, words without a budget, and methods that need one."""
        words = ("delta", "unit", "clip", "insecure_noise_seed")
        given = [name for name in words if getattr(self, name) is not None]
        if self.epsilon is None:
            if given:
                raise ParameterError(f"epsilon: expected a total to go with {', '.join(given)}. Found none.")
            if self.method in catalog.names("private"):
                raise ParameterError(f"method {self.method!r} adds noise: expected epsilon and delta. Found none.")
            return
        if self.delta is None:
            raise ParameterError("delta: expected a number below 1/n to go with epsilon, such as 1e-6. Found none.")
        if self.ratings:
            raise PrivacyError(NONE)
        _ = self.privacy

    @property
    def privacy(self) -> Privacy | None:
        """What the whole run may cost, or None."""
        if self.epsilon is None or self.delta is None:
            return None
        unit: Any = self.unit or "record"
        return Privacy(self.epsilon, self.delta, unit, self.clip, self.insecure_noise_seed)

    def _check_ratings(self) -> None:
        """Refuse what ratings have not, and what only they have."""
        methods = catalog.names("ratings")
        if not self.ratings:
            if self.holdout or self.method in methods:
                found = "holdout" if self.holdout else f"method {self.method!r}"
                raise CofactorError(f"{found} is for ratings: add --ratings, and give files of user,item,rating.")
            return
        if self.method not in methods:
            raise CofactorError(f"--ratings: expected one of the methods {', '.join(methods)}; found {self.method!r}.")
        if self.holdout not in (None, *HOLDOUTS):
            raise CofactorError(f"holdout: expected one of {', '.join(HOLDOUTS)}; found {self.holdout!r}.")
        for name, only in NOT_FOR_RATINGS.items():
            if getattr(self, name) != only:
                raise CofactorError(f"--ratings has no {name}: leave it out. Found {getattr(self, name)!r}.")

    @property
    def together(self) -> bool:
        """Whether all rows are in one place: one file that is not made into clients."""
        return len(self.inputs) == 1 and not (self.group_by or self.split)

    @property
    def blocked(self) -> bool:
        """Whether the method works on row and column blocks of one matrix."""
        return self.method in catalog.names("blocks")

    def _check_blocks(self) -> None:
        """Refuse clients that are no blocks of consecutive rows and columns."""
        others = {"--group-by": self.group_by, "--by": self.by not in ("iid", "rows"), "--ratings": self.ratings}
        found = [f"{len(self.inputs)} files"] if len(self.inputs) > 1 else []
        found += [name for name, value in others.items() if value]
        if found:
            raise CofactorError(
                f"method {self.method!r} works on row and column blocks of one matrix: expected one file, with or "
                f"without --split; found {', '.join(found)}."
            )
        object.__setattr__(self, "by", "rows")

    @property
    def image_shape(self) -> tuple[int, int] | None:
        """Height and width of the picture that the features form."""
        height, _, width = (self.image or "").partition("x")
        return (int(height), int(width)) if self.image else None

    def absolute(self) -> Config:
        """Return the same configuration with absolute paths, so that it can be run from anywhere."""
        return Config(**{**asdict(self), "inputs": [str(Path(p).resolve()) for p in self.inputs]})


def own_rounds(method: str) -> int:
    """Return how many rounds a method takes unless it is told: those of a private one, which cost, are its own.

    >>> own_rounds("dp-nmf"), own_rounds("fedavg")
    (4, 50)
    """
    if method not in catalog.names("private"):
        return ROUNDS
    known = inspect.signature(catalog.find(method)).parameters
    return int(known["rounds"].default) if "rounds" in known else ROUNDS


def read(path: Path) -> Config:
    """Read a TOML configuration; an unknown key is an error that suggests the nearest known one."""
    try:
        values = tomllib.loads(path.read_text())
    except FileNotFoundError as error:
        raise CofactorError(f"{path}: expected a configuration, found no such file.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise CofactorError(f"{path}: expected TOML, found: {error}.") from error
    known = [f.name for f in fields(Config)]
    for key in values:
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else f"; known keys: {', '.join(known)}."
            raise CofactorError(f"{path}: unknown key {key!r}{hint}")
    for key in ("inputs", "rank"):
        if key not in values:
            raise CofactorError(f"{path}: expected the key {key!r}, found only {', '.join(values) or 'nothing'}.")
    values["inputs"] = [str(path.parent / p) for p in values["inputs"]]
    return Config(**values)


def to_toml(config: Config) -> str:
    """Write a configuration as TOML; what is None is left out."""
    values = asdict(config)
    options = values.pop("options")
    lines = [f"{name} = {_value(v)}" for name, v in values.items() if v is not None]
    if options:
        lines += ["", "[options]", *(f"{name} = {_value(v)}" for name, v in options.items() if v is not None)]
    return "\n".join(lines) + "\n"


def _value(value: Any) -> str:
    """JSON's strings, numbers, booleans and lists are TOML's."""
    return json.dumps(value, ensure_ascii=False)
