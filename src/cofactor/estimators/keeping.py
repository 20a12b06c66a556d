"""Models that are kept: their public part as one file, and a model that is made of it, or of a factor, again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from cofactor.data.formats.table import Table
from cofactor.data.load import check_distinct
from cofactor.data.preparation import Preparation
from cofactor.estimators import saved
from cofactor.estimators.annotate import annotate
from cofactor.estimators.base import Federated
from cofactor.estimators.families import TAKES, check_takes, family
from cofactor.estimators.given import NOTHING, factor
from cofactor.estimators.tables import as_table, is_annotated
from cofactor.files import undamaged
from cofactor.local import arrays
from cofactor.method import Method
from cofactor.methods.build import Facts, about, build, refuse
from cofactor.plan import Plan
from cofactor.types import Array, CofactorError, unknown

OWN = ("codes_", "reconstruction_err_")
"""Of a private fit, what is computed without noise: for those who hold the rows."""
BITS = "FederatedBMF"
FACTORS = {"FederatedNMF": "numbers", BITS: "zeros and ones", "FederatedKMeans": "centres"}
"""What the factor of each estimator holds."""


class Kept(Federated):
    """A fitted model ``X ~ W H`` whose public part can be saved.

    ``remade`` is the method that finds codes of the factor of a run, whose file names none; ``told`` are parameters of
    the constructor that say what rows are taken, and how codes are found.
    """

    remade = "exact"
    told: tuple[str, ...] = ()
    marker_scores_: Array | None = None

    def _get_fitted_attr_html(self, doc_link: str = "") -> Any:
        """Return what a notebook shows of a model without being asked: of a private fit nothing but what was released.

        scikit-learn 1.9 asks for it, and shows all else that a fit has found; notebooks are handed on.
        """
        shown = super()._get_fitted_attr_html(doc_link)
        for name in () if self._paid is None else OWN:
            shown.pop(name, None)
        return shown

    def save(self, path: str | Path) -> None:
        """Write the public part of the model, what the server knows, as npz: all that ``transform`` needs, no codes."""
        check_is_fitted(self)
        inputs = list(vars(self).get("feature_names_in_", [])) or None
        held = (self._factor, self.features_, inputs, self.n_features_in_, self._preparation, self.marker_scores_)
        saved.write(Path(path), saved.Saved(*held, self._settings()))

    def _settings(self) -> dict[str, Any]:
        """Return how the model was made, in plain values: nothing of any client."""
        name, options = self._chosen
        made = {"method": name, "options": saved.plain("options", options)} if isinstance(name, str) else {}
        own = self.get_params(deep=False)
        parameters = {known: saved.plain(known, own[known]) for known in self.told}
        parameters |= {"method": self.method, "options": saved.plain("options", self.options)} if made else {}
        own_budget = about(self._chosen[0]).privacy is not None  # of a method object, which is given again
        budget = {} if self._paid is None or own_budget else {"privacy": saved.budget(self._paid)}
        return {"estimator": family(type(self)), "parameters": parameters, "column": self._column, **budget, **made}

    @classmethod
    def load(cls, path: str | Path, *, method: Method | None = None) -> Self:
        """Read what :meth:`save` wrote, or the factor.npz of a run: a model that has no codes and transforms.

        ``method`` is the object that the model was made with, where it was no name: a file holds names only.
        """
        held = saved.read(Path(path))
        with undamaged(Path(path), saved.WHAT):
            return cls._loaded(Path(path), held, method)

    @classmethod
    def _loaded(cls, path: Path, held: saved.Saved, method: Method | None) -> Self:
        """Make the model that a file says, of its factor and of parameters that say how codes are found; no others."""
        k, m = held.factor.shape
        how, whose = held.settings or {"method": cls.remade, "options": {}}, _whose(held, cls)
        if whose != family(cls):
            raise CofactorError(
                f"{path}: expected a factor of {cls.__name__}, found one of {FACTORS[whose]}: use {whose}.load."
            )
        if method is None and "method" not in how:
            raise CofactorError(
                f"{path}: the model was made with a method object, which a file cannot hold: expected the same object, "
                f"{cls.__name__}.load(path, method=...). Found none."
            )
        chosen, options = (how["method"], how["options"]) if method is None else (method, {})
        budget, facts = saved.allowed(how.get("privacy")), Facts(1, m, m)  # codes do not depend on how many rows were
        made = build(chosen, k, Plan(privacy=budget), facts, options)[0]
        given = how.get("parameters", {}) | ({} if method is None else {"method": method})
        given |= {"prepare": held.preparation.text} if held.preparation else {}
        if others := set(given) - {*cls.told, "method", "options", "prepare"}:
            raise CofactorError(f"{path}: expected parameters that codes depend on, found {', '.join(sorted(others))}.")
        model = cls(k, **given, privacy=budget) if budget is not None else cls(k, **given)
        held = replace(held, factor=model._fixed(held.factor))
        return model._holding(held, made, (chosen, options), how.get("column"))

    @classmethod
    def from_factor(cls, H: Any, *, feature_names: Sequence[str] | None = None, **parameters: Any) -> Self:
        """Return a model of a factor (k x m) that is there and stays as it is: it transforms, and nothing is fitted.

        The rows of H are components (bits, or centres), its columns the features: those of a data frame name them, as
        ``feature_names`` do. ``parameters`` are those of the constructor that codes depend on, such as ``alpha_W``,
        ``beta_loss``, ``features="intersection"`` for rows that have more features than H, or ``prepare="library"``.
        """
        table = as_table(H, "H")
        given = arrays.dense(table.X)
        model = cls(len(given), **parameters)
        factor = model._fixed(given)
        names = table.feature_names if feature_names is None else [str(name) for name in feature_names]
        if names is not None and len(names) != factor.shape[1]:
            raise CofactorError(f"feature_names: expected one for each of {factor.shape[1]}, found {len(names)}.")
        check_distinct(Table(factor, names, source="H"))
        preparation = Preparation.of(model.prepare)
        if asking := [step.word for step in preparation.steps if step.asks]:
            raise CofactorError(
                f"prepare: expected steps of single rows, found {', '.join(asking)}, which needs sums over the rows "
                "that the factor was fitted to; prepare new rows as those were."
            )
        k, m = factor.shape
        chosen, options = model._asked(NOTHING)
        check_takes(refuse(chosen, Plan(), options, TAKES[family(cls)]), chosen, family(cls))
        made = build(chosen, k, Plan(), Facts(1, m, m), options)[0]
        return model._holding(saved.Saved(factor, names, names, m, preparation), made, (chosen, options))

    def _fixed(self, H: Array) -> Array:
        """Return a given factor, checked."""
        return factor(H)

    def _holding(self, held: saved.Saved, made: Method, chosen: tuple[Any, Any], column: str | None = None) -> Self:
        """Make this the fitted model of a public part."""
        self.components_, self.codes_, self.clients_ = held.factor, [], []
        self.features_, self.n_features_in_ = held.features, held.width
        self.n_components_, self._preparation, self._made = len(held.factor), held.preparation, made
        self._chosen, self._column = chosen, column
        self.marker_scores_ = held.scores
        if held.inputs is not None:
            self.feature_names_in_ = np.array(held.inputs, dtype=object)
        return self

    def write(self, adata: Any) -> None:
        """Write codes, factor, marker scores and facts into AnnData (or a list of it), where scanpy looks for them.

        Codes go to ``obsm["X_cofactor"]``, the factor to ``varm["cofactor"]``, the facts to ``uns["cofactor"]``; a
        table of markers to ``uns["rank_genes_cofactor"]``, where the model has some; clusters to ``obs["cofactor"]``.
        """
        check_is_fitted(self)
        for held in adata if isinstance(adata, list | tuple) else [adata]:
            if not is_annotated(held):
                raise CofactorError(f"write: expected AnnData, found {type(held).__name__}; transform() returns codes.")
            codes = self._codes(self._new_data(held)[0])
            names = self.features_ or [str(name) for name in held.var_names]
            more: Any = {
                "facts": self._facts(),
                "scores": self.marker_scores_,
                "clusters": self._kind.name == "clusters",
            }
            annotate(held, codes, self._factor, names, **more)

    def _facts(self) -> dict[str, Any]:
        """What a reader of AnnData should know of the fit; of a private one no errors."""
        facts = {"method": str(self.method), "n_components": len(self.components_), "prepare": self._preparation.text}
        facts |= {"cofactor": version("cofactor"), "features": self.features}
        if self._paid is not None:
            return {**facts, "epsilon": float(vars(self).get("epsilon_", self._paid.epsilon))}
        known = {"rounds": "n_rounds_", "error": "reconstruction_err_", "inertia": "inertia_"}
        return {**facts, **{name: vars(self)[held] for name, held in known.items() if held in vars(self)}}


def _whose(held: saved.Saved, cls: type) -> str:
    """Return the estimator that a file is of; that of a run says only whether it is of zeros and ones."""
    if held.settings is not None:
        if (told := held.settings.get("estimator")) not in FACTORS:
            raise unknown("estimator of a model", str(told), FACTORS)
        return str(told)
    bits = held.factor.dtype == np.uint8
    return next(name for name in (family(cls), *FACTORS) if (name == BITS) == bits)
