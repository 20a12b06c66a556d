"""FederatedNMF: non-negative matrix factorization over clients whose rows may not be pooled."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Self

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from cofactor.data.harmonise import How
from cofactor.data.tables import is_annotated
from cofactor.engines.contract import Callback, Engine
from cofactor.engines.outcome import Run
from cofactor.engines.totals import totals
from cofactor.estimators import clients, losses, saved
from cofactor.estimators.annotate import annotate
from cofactor.estimators.base import Federated, seed_of
from cofactor.estimators.ending import warn
from cofactor.kinds.kind import Kind, Score
from cofactor.kinds.numbers import GAPPED, NON_NEGATIVE
from cofactor.local.apart import own_part
from cofactor.local.refit import refit
from cofactor.method import Method
from cofactor.methods.build import Facts, build, kind_of
from cofactor.plan import Plan
from cofactor.privacy.allowance import Privacy
from cofactor.privacy.errors import PrivacyError
from cofactor.select.markers import Marker, Regressed, table
from cofactor.select.rank import select_rank
from cofactor.types import Array, CofactorError, Data

STARTED = ("exact", "shared-own")
"""Methods that begin with a start of their own, which would replace a given factor."""


def _factor(H: Any) -> Array:
    """Return a given factor, checked."""
    found = np.asarray(H)
    if found.ndim != 2 or found.dtype.kind not in "fiub" or not np.isfinite(found).all() or found.min(initial=0) < 0:
        raise CofactorError("H: expected a factor (k x m) of finite numbers >= 0, found something else.")
    return found.astype(np.result_type(found.dtype, np.float32), copy=False)


class FederatedNMF(Federated):
    """One factor H >= 0 shared by all clients, private codes W_j >= 0, ``X_j ~ W_j H``.

    Parameters
    ----------
    n_components : the rank k; None takes min(10, features, rows), ``"auto"`` the one that a rank scan suggests.
    method : a name from :func:`cofactor.methods.catalog.names` or a method object. ``"exact"`` reaches the
        pooled answer in a few rounds, ``"oneshot"`` comes within 1-2 % of it with one upload per client. ``"dsanls"``,
        ``"mu"``, ``"hals"`` and ``"anls-bpp"`` take one matrix; ``"auto"`` chooses by shape, density and rank.
    beta_loss : what ``"exact"`` minimizes: ``"frobenius"``, ``"kullback-leibler"``, ``"itakura-saito"``, or the number
        of a beta-divergence, as in scikit-learn.
    alpha_W, alpha_H, l1_ratio : penalties of codes and factor, as in scikit-learn; they leave the scale of
        ``components_`` as it is.
    rounds : the most rounds to run; the iterations of methods on one matrix. None leaves it to the method, or is 50.
    tol : stop when the loss falls by less than this share in three rounds, or, where methods average, when the factor
        stands still to this share or against its own noise; 0 runs all rounds.
    participation : the share of clients drawn for each round.
    random_state : seed; an int gives the same numbers everywhere.
    engine : what carries the messages; None runs all clients in this process.
    privacy : a :class:`~cofactor.privacy.Privacy`; all releases of the fit together satisfy it. ``"exact"`` then
        becomes ``"dp-moments"``. Codes and errors stay with the clients.
    secure : add messages up under masks, so that only their sum can be seen (3 clients or more).
    features : how features of clients are matched by name: "same" (in any order), "intersection", "union" (a client
        then fits what it has), or "position", which ignores names.
    layer : of AnnData, the layer to read instead of ``X`` ("raw" for the raw matrix).
    prepare : steps that are done with every row first, with sums over all clients where they need them, and again by
        ``transform``: objects of :mod:`cofactor.data.steps`, or their text, as ``"library,log1p,hvg=2000"``.
    options : options of the named method, such as ``{"start": "moments"}``.
    callbacks : functions of (round, shared) called after every round; a true answer ends the fit.

    Attributes
    ----------
    components_ : the shared factor H (k x m), rows at norm 1.
    own_components_ : with ``method="shared-own"``, what each client adds to it for itself (k x m each), or None.
    codes_ : list of the codes W_j (n_j x k), one per client in the order of ``clients_``.
    clients_ : names of the clients: positions in the list, or the distinct groups.
    history_ : one :class:`~cofactor.engines.history.Round` per round: loss, drift, bytes, seconds, participants.
    stability_ : of each component the worst cosine to its partner in restarts that are as good; a warning names those
        below .9. None where no restarts were made, NaN where there was nothing to compare.
    reconstruction_err_ : ``|X - W H|_F / |X|_F`` over all rows.
    n_rounds_, n_iter_ : rounds that were run.
    n_components_ : the rank.
    feature_names_in_, features_ : names of the features that came in, and of the columns of ``components_``.
    marker_scores_ : scores of :meth:`markers` (k x m) where features have names and the fit is not private, or None.
    epsilon_, ledger_ : what the fit cost in all (infinite without ``privacy``), and its ledger (or None).
    choice_ : with ``method="auto"``, the method that was chosen and why.

    Examples
    --------
    >>> import numpy as np
    >>> from cofactor import FederatedNMF
    >>> rng = np.random.default_rng(0)
    >>> H = rng.uniform(size=(3, 8))
    >>> hospitals = [rng.uniform(size=(n, 3)) @ H for n in (30, 50, 20)]
    >>> model = FederatedNMF(3, random_state=0, tol=0).fit(hospitals)
    >>> model.components_.shape, [W.shape for W in model.codes_]
    ((3, 8), [(30, 3), (50, 3), (20, 3)])
    >>> bool(model.reconstruction_err_ < 0.01)
    True
    """

    def __init__(
        self,
        n_components: int | str | None = None,
        *,
        method: str | Method = "exact",
        beta_loss: str | float = "frobenius",
        alpha_W: float = 0.0,
        alpha_H: float | str = "same",
        l1_ratio: float = 0.0,
        rounds: int | None = None,
        tol: float = 1e-4,
        participation: float = 1.0,
        random_state: Any = None,
        engine: Engine | None = None,
        privacy: Privacy | None = None,
        secure: bool = False,
        features: How = "same",
        layer: str | None = None,
        prepare: Any = None,
        options: dict[str, Any] | None = None,
        callbacks: Sequence[Callback] = (),
    ) -> None:
        self.n_components = n_components
        self.method = method
        self.beta_loss = beta_loss
        self.alpha_W = alpha_W
        self.alpha_H = alpha_H
        self.l1_ratio = l1_ratio
        self.rounds = rounds
        self.tol = tol
        self.participation = participation
        self.random_state = random_state
        self.engine = engine
        self.privacy = privacy
        self.secure = secure
        self.features = features
        self.layer = layer
        self.prepare = prepare
        self.options = options
        self.callbacks = callbacks

    _dtype = (np.float64, np.float32)

    @property
    def _kind(self) -> Kind:  # type: ignore[override]
        return GAPPED if kind_of(self.method) == GAPPED.name else NON_NEGATIVE

    def _conclude(self, score: Score, outcome: Run) -> None:
        self.reconstruction_err_ = score.error
        warn(outcome, self.tol, ConvergenceWarning)

    def fit(self, X: Any, y: Any = None, groups: Any = None, *, H: Any = None) -> Self:
        """Fit to clients, as :meth:`Federated.fit` says; ``H`` (k x m) is a public factor to begin at."""
        self._fit(X, groups, None if H is None else _factor(H))
        return self

    def _asked(self, start: Array | None) -> tuple[str | Method, dict[str, Any]]:
        """Return the method, which another loss or a penalty changes, and a start that keeps a given factor."""
        options = self._options()
        more = losses.options(self.beta_loss, self.alpha_W, self.alpha_H, self.l1_ratio)
        if not more:
            at = {"start": "random"} if start is not None and self.method in STARTED else {}
            return self.method, {**at, **options}
        if self.method not in ("exact", "exact-beta"):
            raise CofactorError(
                f"beta_loss, alpha_W and alpha_H: expected method='exact' to go with them, found {self.method!r}."
            )
        return "exact-beta", {**more, **options}

    def _rank(self, facts: Facts, data: list[Data]) -> int:
        if self.n_components != "auto":
            return super()._rank(facts, data)
        if self.privacy is not None:
            raise PrivacyError("n_components='auto' is refused in a private fit: it reads all rows without noise.")
        return select_rank(data, seed=seed_of(self.random_state), engine=self.engine).suggestion

    def _codes(self, X: Data) -> Array:
        return self._refit()(X, self.components_)

    def _refit(self) -> Any:
        """Return what finds codes: the method, unless it needs blocks of the whole matrix."""
        return refit if self._made.traits.kind == "blocks" else self._made.refit

    def _add(self, data: list[Data], facts: Facts, plan: Plan, engine: Engine | None) -> None:
        weight, H = self._made.traits.apart, self.components_
        self.own_components_: list[Array] | None = None
        if weight is not None and self.codes_:
            self.own_components_ = [own_part(X, W, H, weight) for X, W in zip(data, self.codes_, strict=True)]
        self.marker_scores_: Array | None = None
        if self.features_ is not None and plan.privacy is None:
            self.marker_scores_ = self._scores(data, facts.groups, engine=engine, secure=plan.secure)

    def _scores(self, data: list[Data], groups: tuple[int, ...] | None = None, **how: Any) -> Array:
        question = Regressed(self._refit(), self.components_, groups)
        return question.scores(totals(question, data, self.components_.shape[1], **how))

    def markers(self, X: Any = None, *, top: int = 20) -> list[Marker]:
        """Return the ``top`` features that go with each component more than with the others, best first.

        Scores are those of cNMF: ordinary least squares of every feature, at mean 0 and variance 1, on the codes; from
        sums over clients. Without X they are those of the fit, which features with names have; else those of the rows
        of X (one matrix, or a list of clients). ``pandas.DataFrame(model.markers())`` is a table.
        """
        check_is_fitted(self)
        if self.privacy is not None:
            raise PrivacyError(
                "markers are refused after a private fit: they need sums over all rows, which would leave without "
                "noise and outside the budget. The weights in components_ are what was paid for."
            )
        scores = self.marker_scores_ if X is None else self._scores(self._new_data(X))
        if scores is None:
            raise CofactorError("markers: expected a fit of features with names, or rows to score: markers(X).")
        return table(scores, self.components_, self.features_, top=top)

    def write(self, adata: Any) -> None:
        """Write codes, factor, marker scores and facts into AnnData (or a list of it), where scanpy looks for them.

        Codes go to ``obsm["X_cofactor"]``, the factor to ``varm["cofactor"]``, the facts to ``uns["cofactor"]``, a
        table of markers to ``uns["rank_genes_cofactor"]``.
        """
        check_is_fitted(self)
        for held in adata if isinstance(adata, list | tuple) else [adata]:
            if not is_annotated(held):
                raise CofactorError(f"write: expected AnnData, found {type(held).__name__}; transform() returns codes.")
            codes = self._codes(self._new_data(held)[0])
            names = self.features_ or [str(name) for name in held.var_names]
            annotate(held, codes, self.components_, names, facts=self._facts(), scores=self.marker_scores_)

    def _facts(self) -> dict[str, Any]:
        """What a reader of AnnData should know of the fit; of a private one no errors."""
        facts = {"method": str(self.method), "n_components": len(self.components_), "prepare": self._preparation.text}
        facts |= {"cofactor": version("cofactor"), "features": self.features}
        if self.privacy is not None:
            return {**facts, "epsilon": float(self.epsilon_)}
        known = {"rounds": "n_rounds_", "error": "reconstruction_err_"}
        return {**facts, **{name: vars(self)[held] for name, held in known.items() if held in vars(self)}}

    def save(self, path: str | Path) -> None:
        """Write the public part of the model, what the server knows, as npz: factor, names, preparation, scores."""
        check_is_fitted(self)
        inputs = list(vars(self).get("feature_names_in_", [])) or None
        held = (self.components_, self.features_, inputs, self.n_features_in_, self._preparation, self.marker_scores_)
        saved.write(Path(path), saved.Saved(*held))

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read what :meth:`save` wrote, or the factor.npz of a run: a model that has no codes and transforms."""
        held = saved.read(Path(path))
        model = cls(len(held.factor), prepare=held.preparation.text or None)
        model.components_, model.codes_, model.clients_ = held.factor, [], []
        model.features_, model.n_features_in_, model.marker_scores_ = held.features, held.width, held.scores
        model.n_components_, model._preparation = len(held.factor), held.preparation
        model._made = build("exact", len(held.factor), Plan(), Facts(1, held.factor.shape[1], None))[0]
        if held.inputs is not None:
            model.feature_names_in_ = np.array(held.inputs, dtype=object)
        return model

    def inverse_transform(self, X: Any) -> Array | list[Array]:
        """Return the reconstruction ``W H`` of codes W; a list of codes gives a list."""
        check_is_fitted(self)
        found = [np.asarray(W) @ self.components_ for W in (X if clients.is_many(X) else [X])]
        return found if clients.is_many(X) else found[0]

    def score(self, X: Any, y: Any = None) -> float:
        """Return the explained share ``1 - |X - W H|^2 / |X|^2`` with codes refitted for X."""
        return 1 - self._score(X).error ** 2

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = True
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
