"""FederatedMF: ratings of many people, factorized together while every rating stays with the one who gave it."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from cofactor.engines.contract import Callback, Engine
from cofactor.engines.history import Round
from cofactor.engines.loop import carrier, run
from cofactor.estimators import among, public
from cofactor.estimators.base import seed_of
from cofactor.estimators.clients import facts as facts_of
from cofactor.estimators.ending import warn
from cofactor.estimators.families import TAKES, check_takes
from cofactor.estimators.named_ratings import labels_of, names, over_all_items, places, read, rows_of, stored, triples
from cofactor.estimators.recommender import Recommender
from cofactor.estimators.tables import in_memory, is_frame
from cofactor.kinds import Checked
from cofactor.method import Method
from cofactor.methods.build import build, refuse
from cofactor.plan import Plan
from cofactor.ratings import Layout
from cofactor.ratings.ranking import Ranking
from cofactor.types import Array, CofactorError, DataError

ALIKE = "all ratings are the same, so that they teach nothing; implicit=True is the model of clicks, which are."
HELD_BACK = (
    "nothing is made of components {}: what the others and the biases leave is no larger than the ridge allows. A "
    "smaller `ridge` may find more; held-out ratings say whether it is true."
)


class FederatedMF(Recommender, TransformerMixin, BaseEstimator):
    """Factors of users and items on the observed ratings: ``x_ui ~ w_u h_i + b_u + c_i + mean``.

    Item factors, item biases and the mean are shared; the factors and the bias of a user stay with the user. Unknown
    users and items are answered by what is left: an unknown user gets ``mean + c_i``, an unknown item ``mean + b_u``,
    both together the mean. Without biases the answer is 0.

    With ``implicit=True`` the numbers are how often something was bought, clicked or watched (Hu, Koren and Volinsky
    2008): ``w_u h_i`` is then a preference, near 1 for what a user goes for, 0 in all other cells.

    Parameters
    ----------
    n_components : the rank k.
    method : a name from ``cofactor.methods.catalog.names("ratings")``, or a masked method object.
        ``"exact-als"`` gives the pooled answer; ``"masked-fedmavg"`` sends far fewer numbers per round.
    biases : whether users and items have biases, and ratings a mean; None is yes, but for implicit feedback no.
    implicit : whether what was not observed counts as zero, with weight 1.
    alpha : with ``implicit`` an observed x has weight ``1 + alpha x``.
    ridge, bias_ridge : what holds factors and biases back; ``bias_ridge`` None is half the ridge.
    rounds : the most rounds to run; None is 200, or 50 with ``tol=0``, and more of them with absent clients.
    tol : stop when the loss falls by less than this share in three rounds; 0 runs all rounds.
    participation : the share of clients drawn for each round.
    users_as_clients : whether every user is a client of its own. The model is the same, and far more is sent; where
        clients answer for themselves (participation, dropouts) this is what makes users do so.
    rating_range : (lowest, highest) rating; others are refused, and predictions are cut to it. None declares nothing.
    duplicates : "error", "mean" or "sum": what to do with several ratings of one item by one user.
    random_state : seed; an int gives the same numbers everywhere.
    engine : what carries the messages; None runs all clients in this process.
    secure : add messages up under masks, so that only their sum can be seen (3 clients or more).
    options : further options of the named method.
    callbacks : functions of (round, shared) called after every round; a true answer ends the fit.

    Attributes
    ----------
    components_ : item factors H (k x m); item_biases_ (m) and mean_ go with them.
    factor_ : all of it as one extended factor (see :mod:`cofactor.ratings.halves`).
    codes_ : extended codes of the users (n x (k + 3)), so that ``codes_ @ factor_`` are predictions.
    users_, items_ : names of the rows and columns.
    history_ : one :class:`~cofactor.engines.history.Round` per round.
    n_rounds_, n_iter_ : rounds that were run.
    n_components_ : the rank.

    Examples
    --------
    >>> from cofactor import FederatedMF
    >>> ratings = (["ann", "ann", "bob", "bob", "cy"], ["x", "y", "x", "z", "x"], [5.0, 1.0, 4.0, 2.0, 5.0])
    >>> model = FederatedMF(1, ridge=0.1, random_state=0).fit(ratings)
    >>> model.recommend("cy", 2).tolist()
    ['z', 'y']
    >>> model.predict(["cy", "nobody"], ["y", "x"]).round(1).shape
    (2,)
    """

    def __init__(
        self,
        n_components: int = 10,
        *,
        method: str | Method = "exact-als",
        biases: bool | None = None,
        implicit: bool = False,
        alpha: float = 40.0,
        ridge: float = 10.0,
        bias_ridge: float | None = None,
        rounds: int | None = None,
        tol: float = 1e-4,
        participation: float = 1.0,
        users_as_clients: bool = False,
        rating_range: tuple[float, float] | None = None,
        duplicates: str = "error",
        random_state: Any = None,
        engine: Engine | None = None,
        secure: bool = False,
        options: dict[str, Any] | None = None,
        callbacks: Sequence[Callback] = (),
    ) -> None:
        self.n_components = n_components
        self.method = method
        self.biases = biases
        self.implicit = implicit
        self.alpha = alpha
        self.ridge = ridge
        self.bias_ridge = bias_ridge
        self.rounds = rounds
        self.tol = tol
        self.participation = participation
        self.users_as_clients = users_as_clients
        self.rating_range = rating_range
        self.duplicates = duplicates
        self.random_state = random_state
        self.engine = engine
        self.secure = secure
        self.options = options
        self.callbacks = callbacks

    def fit(self, R: Any, y: Any = None, groups: Any = None) -> Self:
        """Fit to ratings: one client, which sums over its users before anything leaves.

        They are CSR (users x items), a tuple (users, items, ratings), or a data frame (of pandas, polars or pyarrow)
        with columns of these names. Of ``implicit`` feedback users and items are enough: each line counts as 1.

        ``groups`` makes several clients, such as shops with their customers: one label per row of the matrix (of
        triples: per user, in the order of their names), or the name of a column of the data frame.
        """
        plan = Plan(self.rounds, self.participation, self.tol, seed_of(self.random_state), secure=self.secure)
        kind = refuse(self.method, plan, self._options(), TAKES["FederatedMF"])
        check_takes(kind, self.method, "FederatedMF")
        engine = None if self.engine is None else carrier(self.engine, plan)
        team = among.ALONE if engine is None else engine.team
        with among.starting(team):
            R, plan = in_memory(R), among.of_one_seed(plan, team)
            held = read(R, duplicates=self.duplicates, limits=self.rating_range, counts=self.implicit)
            if held.matrix.nnz == 0:
                raise DataError(f"expected at least one rating, found none in a matrix of shape {held.matrix.shape}.")
            held = over_all_items(held, team)
            labels = labels_of(R, groups, held.users) if isinstance(groups, str) else groups
            rows = rows_of(held.matrix.shape[0], labels, apart=self.users_as_clients)
            data = Checked(held.matrix[r] for r in rows)
            facts = facts_of(data, plan, team)
            method, plan = build(self.method, self.n_components, plan, facts, self._options())
        alike = not method.layout.implicit and np.ptp(held.matrix.data) == 0  # type: ignore[attr-defined]
        if alike:
            warnings.warn(ALIKE, UserWarning, stacklevel=2)
        outcome = run(method, data, plan, engine=engine, callbacks=self.callbacks)
        warn(outcome, self.tol, ConvergenceWarning)
        if outcome.empty and not alike:
            warnings.warn(HELD_BACK.format(", ".join(map(str, outcome.empty))), UserWarning, stacklevel=2)
        self.layout_: Layout = method.layout  # type: ignore[attr-defined]
        self.factor_, self.users_, self.items_ = outcome.factor, held.users, held.items
        self.codes_ = np.empty((held.matrix.shape[0], self.layout_.width), outcome.factor.dtype)
        self.codes_[np.concatenate(rows)] = np.vstack(outcome.codes)
        self.history_: list[Round] = outcome.history
        self.n_rounds_ = self.n_iter_ = len(outcome.history)
        self.n_components_, self.n_features_in_ = len(self.components_), held.matrix.shape[1]
        self._seen = held.matrix
        return self

    def fit_transform(self, R: Any, y: Any = None, groups: Any = None) -> Array:
        """Fit and return ``codes_``."""
        return self.fit(R, y, groups).codes_

    def _options(self) -> dict[str, Any]:
        """Return the options of the named method."""
        held = {"biases": self.biases, "ridge": self.ridge, "bias_ridge": self.bias_ridge}
        held |= {"alpha": self.alpha} if self.implicit else {}
        return {**held, **(self.options or {})}

    @property
    def components_(self) -> Array:
        """Item factors (k x m)."""
        return self.factor_[: self.layout_.rank]

    @property
    def item_biases_(self) -> Array:
        """How much better than the mean an item is rated (m)."""
        return self.factor_[self.layout_.rank + 1] if self.layout_.biases else np.zeros(self.n_features_in_)

    @property
    def mean_(self) -> float:
        """The mean rating, 0 without biases."""
        return float(self.factor_[-1, 0]) if self.layout_.biases else 0.0

    def predict(self, users: Any, items: Any = None) -> Array:
        """Return the rating of every (user, item) pair of names; they broadcast, unknown ones fall back to biases.

        A data frame with columns of users and items holds both.
        """
        check_is_fitted(self)
        if items is None:
            users, items = triples(in_memory(users), "user", "item")
        users, items = np.broadcast_arrays(names(users), names(items))
        codes = np.vstack([self.codes_, self.layout_.empty_codes(1, self.codes_.dtype)])
        factor = np.vstack([self.factor_.T, self.layout_.unknown_item(self.factor_)])
        u, i = places(users, self.users_), places(items, self.items_)
        return self._cut(np.einsum("...k,...k->...", codes[u], factor[i]))

    def score(self, R: Any, y: Any = None) -> float:
        """Return minus the RMSE on ratings: as scikit-learn has it, more is better."""
        return -self.rmse(R)

    def rmse(self, R: Any) -> float:
        """Return the RMSE on ratings (users x items as fitted, triples by name, a data frame)."""
        u, i, values = self._test(R)
        if self.layout_.implicit:
            raise CofactorError("rmse: expected ratings, found a model of implicit feedback; see `ranking`.")
        if len(values) == 0:
            raise DataError("rmse: expected at least one rating, found none.")
        return float(np.sqrt(np.mean((self.predict(u, i) - values) ** 2)))

    def ranking(self, R: Any, n: int = 10, *, relevant: float | None = None) -> Ranking:
        """Return precision, recall and NDCG at n of every user; held-out ratings >= ``relevant`` are the hits.

        None is 4, and of implicit feedback anything that was observed.
        """
        u, i, values = self._test(R)
        good = (
            values > 0
            if relevant is None and self.layout_.implicit
            else values >= (4.0 if relevant is None else relevant)
        )
        return self._ranking(u[good], i[good], n)

    def _test(self, R: Any) -> tuple[Array, Array, Array]:
        """Return names of users and items, and ratings."""
        check_is_fitted(self)
        R = in_memory(R)
        if isinstance(R, tuple) or is_frame(R):
            users, items, values = triples(R, counts=self.layout_.implicit)
            return names(users), names(items), np.asarray(values)
        C = stored(R)
        if C.shape != (len(self.users_), len(self.items_)):
            raise DataError(f"expected ratings of shape {(len(self.users_), len(self.items_))}, found {C.shape}.")
        return self.users_[C.row], self.items_[C.col], C.data

    def save(self, path: str | Path) -> None:
        """Write the public part of the model, what the server knows: items, factor, settings; nothing of any user."""
        check_is_fitted(self)
        public.write(Path(path), public.Public(self.factor_, self.items_, self.layout_, self.rating_range))

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read what :meth:`save` wrote, or the factor.npz of a run on ratings.

        The model knows all items and no user; ``transform`` and ``recommend(ratings=...)`` serve one on the user's own
        machine.
        """
        held = public.read(Path(path))
        made = held.layout
        settings = {"ridge": made.ridge, "bias_ridge": made.bias_ridge, "rating_range": held.rating_range}
        settings |= {"implicit": True, "alpha": made.alpha} if made.implicit else {"biases": made.biases}
        model = cls(made.rank, **settings)  # type: ignore[arg-type]
        model.layout_, model.factor_, model.items_ = made, held.factor, held.items
        model.users_, model.n_features_in_, model.n_components_ = held.items[:0], held.factor.shape[1], made.rank
        model.codes_ = made.empty_codes(0, held.factor.dtype)
        return model

    def _cut(self, values: Array) -> Array:
        return values if self.rating_range is None else np.clip(values, *self.rating_range)
