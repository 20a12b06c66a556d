"""FederatedNMF: non-negative matrix factorization over clients whose rows may not be pooled."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from cofactor.engines.contract import Callback, Engine
from cofactor.engines.loop import Run
from cofactor.estimators import clients
from cofactor.estimators.base import Federated
from cofactor.kinds.kind import Score
from cofactor.kinds.numbers import NON_NEGATIVE
from cofactor.local.refit import refit
from cofactor.method import Method
from cofactor.privacy.allowance import Privacy
from cofactor.types import Array, Data


class FederatedNMF(Federated):
    """One factor H >= 0 shared by all clients, private codes W_j >= 0, ``X_j ~ W_j H``.

    Parameters
    ----------
    n_components : the rank k; None takes min(10, features, rows).
    method : a name from :func:`cofactor.methods.catalog.names` or a method object. ``"exact"`` reaches the
        pooled answer in a few rounds, ``"oneshot"`` comes within 1-2 % of it with one upload per client. ``"dsanls"``,
        ``"mu"``, ``"hals"`` and ``"anls-bpp"`` take one matrix; ``"auto"`` chooses by shape, density and rank.
    rounds : the most rounds to run; the iterations of methods on one matrix. None leaves it to the method, or is 50.
    tol : stop when the loss falls by less than this share in three rounds; 0 runs all rounds.
    participation : the share of clients drawn for each round.
    random_state : seed; an int gives the same numbers everywhere.
    engine : what carries the messages; None runs all clients in this process.
    privacy : a :class:`~cofactor.privacy.Privacy`; all releases of the fit together satisfy it. ``"exact"`` then
        becomes ``"dp-moments"``. Codes and errors stay with the clients.
    secure : add messages up under masks, so that only their sum can be seen (3 clients or more).
    options : options of the named method, such as ``{"start": "moments"}``.
    callbacks : functions of (round, shared) called after every round; a true answer ends the fit.

    Attributes
    ----------
    components_ : the shared factor H (k x m), rows at norm 1.
    codes_ : list of the codes W_j (n_j x k), one per client in the order of ``clients_``.
    clients_ : names of the clients: positions in the list, or the distinct groups.
    history_ : one :class:`~cofactor.engines.history.Round` per round: loss, drift, bytes, seconds, participants.
    reconstruction_err_ : ``|X - W H|_F / |X|_F`` over all rows.
    n_rounds_ : rounds that were run.
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
        n_components: int | None = None,
        *,
        method: str | Method = "exact",
        rounds: int | None = None,
        tol: float = 1e-4,
        participation: float = 1.0,
        random_state: Any = None,
        engine: Engine | None = None,
        privacy: Privacy | None = None,
        secure: bool = False,
        options: dict[str, Any] | None = None,
        callbacks: Sequence[Callback] = (),
    ) -> None:
        self.n_components = n_components
        self.method = method
        self.rounds = rounds
        self.tol = tol
        self.participation = participation
        self.random_state = random_state
        self.engine = engine
        self.privacy = privacy
        self.secure = secure
        self.options = options
        self.callbacks = callbacks

    _dtype = (np.float64, np.float32)
    _kind = NON_NEGATIVE

    def _conclude(self, score: Score, outcome: Run) -> None:
        self.reconstruction_err_ = score.error
        if self.tol > 0 and not outcome.converged and self._made.traits.judged == "loss" and not outcome.arrivals:
            warnings.warn(
                f"{self.n_rounds_} rounds were not enough to reach tol={self.tol}; raise `rounds` or `tol`.",
                ConvergenceWarning,
                stacklevel=4,
            )

    def _codes(self, X: Data) -> Array:
        return refit(X, self.components_)

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
