"""The configuration of a run: settings that were checked before anything is read, and the file that reproduces them."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from copy import copy
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

from cofactor import records
from cofactor.data.formats.table import listed
from cofactor.data.preparation import Preparation
from cofactor.engines.contract import Engine
from cofactor.engines.named import NAMES, named
from cofactor.engines.secure import in_words
from cofactor.files import read_toml
from cofactor.jobs import penalized, weighing
from cofactor.jobs.settings import Settings
from cofactor.kinds import KINDS
from cofactor.local.devices import refuse as refuse_device
from cofactor.methods import catalog
from cofactor.methods.build import AUTO, PRIVATE_FORM, refuse, refuse_dealt
from cofactor.methods.refusals import no_private
from cofactor.plan import Plan
from cofactor.privacy.allowance import Privacy
from cofactor.privacy.errors import ParameterError, PrivacyError
from cofactor.types import CofactorError, unknown

CHOICES = {
    "by": ("iid", "dirichlet", "sorted", "rows"),
    "features": ("same", "intersection", "union", "position"),
    "engine": NAMES,
    "duplicates": ("error", "mean", "sum"),
    "holdout": ("time", "random", "user"),
}
GAPS = "exact-gaps"
"""The method that cells of other weights than 1 are for."""
NOT_FOR_RATINGS = {
    "features": "same",
    "layer": None,
    "leave_out": None,
    "cell_weights": None,
    "row_weights": None,
    "image": None,
    "prepare": None,
    "split": None,
    "group_by": None,
}
"""Settings without a meaning for ratings, and what they are then."""


@dataclass(frozen=True)
class Config(Settings):
    """The settings of a run, settled and checked. Paths become absolute in a run folder."""

    def __post_init__(self) -> None:
        """Settle what follows from the rest, and refuse what cannot be run before anything is read."""
        asked = self.method
        object.__setattr__(self, "method", self._settled_method())
        object.__setattr__(self, "options", {**penalized.options(self), **self.options})
        refuse(self.method, self.plan, self.options, features=self.features, groups=self.group_by)
        if (self.split or 1) > 1:
            refuse_dealt(self.plan)
        if self.boolean and self.kind != "boolean":
            known = ", ".join(catalog.names("boolean"))
            raise CofactorError(f"--boolean: expected a method for zeros and ones ({known}), found {self.method!r}.")
        object.__setattr__(self, "boolean", self.kind == "boolean")
        if self.epsilon is not None and asked in ("exact", AUTO) and self.kind == "real":
            object.__setattr__(self, "why", PRIVATE_FORM)
        if not self.inputs:
            raise CofactorError("expected at least one input file, found none.")
        self._check_words()
        self._check_device()
        weighing.check(self)
        self._check_numbers()
        _ = self.preparation  # steps that cannot be done are refused now
        if self.kind == "blocks":
            self._check_blocks()
        self._check_ratings()
        if self.keys is not None and not self.secure:
            raise CofactorError("keys: expected --secure to go with it, since only masks need keys. Found none.")
        if self.group_by and self.split:
            raise CofactorError("expected either --group-by or --split, found both.")
        if (self.group_by or self.split) and len(self.inputs) > 1:
            raise CofactorError(
                f"--group-by and --split make clients of one file; found {len(self.inputs)} files, which are clients."
            )

    def _settled_method(self) -> str:
        """The default of a kind, or of a private run, in the place of the default of all."""
        if self.cell_weights and self.method in ("exact", "exact-beta"):
            return GAPS
        if self.boolean and self.method in ("exact", AUTO):
            return catalog.names("boolean")[0]
        if self.ratings and self.method == "exact":
            return catalog.names("ratings")[0]
        if self.epsilon is not None and self.method in ("exact", AUTO) and not self.options:
            return catalog.names("private")[0]
        return self.method

    def _check_words(self) -> None:
        for name, known in CHOICES.items():
            value = getattr(self, name)
            if value is not None and value not in known:
                raise unknown(name, value, known)
        if self.image and not re.fullmatch(r"\d+x\d+", self.image):
            raise CofactorError(f"image: expected height x width of a picture, as 28x28; found {self.image!r}.")
        if self.split and self.by in ("dirichlet", "sorted") and not self.label:
            raise CofactorError(f"--by {self.by} spreads rows by a label; name its column with --label.")
        if bool(self.scheduler) != (self.engine == "dask"):
            raise CofactorError(
                f"--engine dask and --scheduler, as tcp://host:8786, belong together; found --engine {self.engine} and "
                f"{'--scheduler ' + self.scheduler if self.scheduler else 'no --scheduler'}."
            )

    def _check_device(self) -> None:
        """Refuse a device that is not here, or that a run would not use."""
        if self.device is None:
            return
        if self.engine != "inline":
            raise CofactorError(f"--device: expected --engine inline to go with it, found --engine {self.engine}.")
        refuse_device(self.device, self.kind, private=self.epsilon is not None)

    def _check_numbers(self) -> None:
        if self.split is not None and self.split < 1:
            raise CofactorError(f"split must be at least 1. Found {self.split}.")
        if not self.alpha > 0:
            raise CofactorError(f"alpha must be a positive number. Found {self.alpha}.")
        if not 0 < self.holdout_share < 1:
            raise CofactorError(f"holdout_share must be in (0, 1). Found {self.holdout_share}.")

    @cached_property
    def preparation(self) -> Preparation:
        """What is done with every row first; not settled on data yet."""
        if self.prepare is None:
            return Preparation()
        return Preparation.of(self.prepare, KINDS[self.kind], private=self.privacy is not None)

    @property
    def kind(self) -> str:
        """What the data are."""
        return "real" if self.method == AUTO else catalog.CATALOG[self.method].kind

    @cached_property
    def plan(self) -> Plan:
        """How the run goes."""
        more: dict[str, Any] = {"privacy": self.privacy, "secure": self.secure}
        return Plan(self.rounds, self.participation, self.tol, self.seed, **more)

    @property
    def privacy(self) -> Privacy | None:
        """What the whole run may cost, or None; half a budget and words without one are refused."""
        words = ("delta", "unit", "clip", "rows", "curious", "insecure_noise_seed", "ledger")
        given = [n for n in words if getattr(self, n) is not None]
        if self.epsilon is None:
            if given:
                raise ParameterError(f"epsilon: expected a total to go with {', '.join(given)}. Found none.")
            return None
        if self.curious is not None and not self.secure:
            raise ParameterError("curious: expected --secure to go with it, since only sums share noise. Found none.")
        if self.delta is None:
            raise ParameterError("delta: expected a number below 1/n to go with epsilon, such as 1e-6. Found none.")
        unit: Any = self.unit or "record"
        more: dict[str, Any] = {} if self.curious is None else {"curious": self.curious}
        more |= {"ledger": self.ledger, "rows": self.rows}
        return Privacy(self.epsilon, self.delta, unit, self.clip, self.insecure_noise_seed, **more)

    @property
    def apart(self) -> bool:
        """Whether what one client holds or finds alone is not to be seen: with noise, or under masks."""
        return self.epsilon is not None or self.secure

    @property
    def method_options(self) -> dict[str, Any]:
        """The options that the method is made with: those of its kind, and those that were given."""
        usual = KINDS[self.kind].options if self.privacy is None else {}
        chosen = {"rated_only": True} if self.rated_only else {}
        return {**usual, **chosen, **self.options}

    def masks(self, clients: int) -> str | None:
        """Say what the masks of a run over so many clients rest on; None where there are none."""
        return in_words(self.plan, clients, keys=self.keys is not None) if self.secure else None

    def carrier(self) -> Engine:
        """Return the engine."""
        settings = {"scheduler": self.scheduler} if self.scheduler else {}
        if self.device:
            settings["device"] = self.device
        return named(self.engine, **settings)

    def _check_ratings(self) -> None:
        """Refuse what ratings have not, and what only they have."""
        if self.kind != "ratings" or not self.ratings:
            if self.holdout or self.kind == "ratings":
                found = "holdout" if self.holdout else f"method {self.method!r}"
                raise CofactorError(f"{found} is for ratings: add --ratings, and give files of user,item,rating.")
            if found := self._of_ratings():
                raise CofactorError(f"{found} is for ratings: add --ratings, and give files of user,item,rating.")
            if self.ratings:
                known = ", ".join(catalog.names("ratings"))
                raise CofactorError(f"--ratings: expected one of the methods {known}; found {self.method!r}.")
            return
        if self.epsilon is not None:
            raise PrivacyError(no_private("ratings"))
        if self.users_as_clients and len(self.inputs) > 1:
            raise CofactorError(
                f"--users-as-clients makes clients of one file; found {len(self.inputs)} files, which are clients."
            )
        for name, only in NOT_FOR_RATINGS.items():
            if getattr(self, name) != only:
                raise CofactorError(f"--ratings has no {name}: leave it out. Found {getattr(self, name)!r}.")

    def _of_ratings(self) -> str:
        """Return an option that only ratings have, where one was given."""
        given = {"--users-as-clients": self.users_as_clients, "--rated-only": self.rated_only, "--titles": self.titles}
        return next((name for name, value in given.items() if value), "")

    @property
    def left_out(self) -> list[str]:
        """The columns that are no features."""
        return listed(self.leave_out) if self.leave_out else []

    @property
    def together(self) -> bool:
        """Whether all rows are in one place: one file that is not made into clients."""
        return len(self.inputs) == 1 and not (self.group_by or self.split)

    def _check_blocks(self) -> None:
        """Refuse clients that are no blocks of consecutive rows and columns."""
        others = {
            "--prepare": self.prepare,
            "--group-by": self.group_by,
            "--by": self.by not in ("iid", "rows"),
            "--ratings": self.ratings,
        }
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
        return self._moved(lambda path: _in_utf8(os.path.realpath(path)))

    def _moved(self, place: Callable[[str], str]) -> Config:
        """Return the same configuration with its paths elsewhere."""
        given = {name: getattr(self, name) for name in ("keys", "ledger", "titles")}
        moved: dict[str, Any] = {name: place(path) for name, path in given.items() if path is not None}
        found = copy(self)  # nothing else is another, and so nothing is checked again
        vars(found).update(inputs=[place(path) for path in self.inputs], **moved)
        vars(found).pop("plan", None)  # which may name a ledger
        return found


def _in_utf8(path: str) -> str:
    """Refuse a path that no file of a run could name: systems allow any bytes in one."""
    try:
        path.encode()
    except UnicodeEncodeError as error:
        text = f"{path!r}: expected a path in UTF-8, found other bytes in it; rename the file or its folder."
        raise CofactorError(text) from error
    return path


def read(path: Path) -> Config:
    """Read a TOML configuration; an unknown key is an error that suggests the nearest known one."""
    values = read_toml(path, [f.name for f in fields(Config)])
    return records.decode(Config, values, str(path))._moved(lambda name: str(path.parent / name))


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
