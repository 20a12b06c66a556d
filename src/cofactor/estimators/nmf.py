"""FederatedNMF: non-negative matrix factorization over clients whose rows may not be pooled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import Tags

from cofactor.data.harmonise import How
from cofactor.engines.contract import Callback, Engine
from cofactor.engines.outcome import Run
from cofactor.estimators import losses
from cofactor.estimators.base import seed_of
from cofactor.estimators.ending import nothing, tell, warn
from cofactor.estimators.factored import Factored
from cofactor.estimators.given import INITS, Given
from cofactor.kinds.kind import Kind, Score
from cofactor.kinds.numbers import GAPPED, NON_NEGATIVE
from cofactor.local.devices import settled
from cofactor.method import Method
from cofactor.methods.build import Facts, about
from cofactor.methods.pooled import SETTLES
from cofactor.plan import is_whole
from cofactor.privacy.allowance import Privacy
from cofactor.privacy.errors import PrivacyError
from cofactor.select.rank import select_rank
from cofactor.types import CofactorError, Data


class FederatedNMF(Factored):
    """One factor H >= 0 shared by all clients, private codes W_j >= 0, ``X_j ~ W_j H``.

    Parameters
    ----------
    n_components : the rank k; None takes min(10, features, rows), ``"auto"`` the one that a rank scan suggests.
    method : a name from :func:`cofactor.methods.catalog.names` or a method object. ``"exact"`` reaches the
        pooled answer in a few rounds, ``"oneshot"`` comes within 1-2 % of it with one upload per client. ``"dsanls"``,
        ``"mu"``, ``"hals"`` and ``"anls-bpp"`` take one matrix; ``"auto"`` chooses by shape, density and rank.
    beta_loss : what ``"exact"`` minimizes: ``"frobenius"``, ``"kullback-leibler"``, ``"itakura-saito"``, or the number
        of a beta-divergence, as in scikit-learn.
    alpha_W, l1_ratio : penalty of the codes, as in scikit-learn; it leaves the scale of ``components_`` as it is.
    alpha_H : that of the factor; "same" is ``alpha_W``.
    consensus : how many starts to find components that keep coming back in (cNMF), as ``cofactor consensus`` does: they
        run on the server, on one summary of each client; strays are dropped, the others clustered, and the medians
        settled by 30 rounds of ``"exact"`` on all rows (``options``: ``settles``, ``density``, ``local_rank``).
    orthogonality : a penalty of components that are used in the same rows for the same features,
        ``orthogonality / 2 sum_{p != l} <W_p, W_l> <H_p, H_l>``: 1 makes them nearly disjoint.
    init : None is the method's own start; "random"; or "custom", to begin at what ``fit`` is given.
    rounds : the most rounds to run; the iterations of methods on one matrix. None leaves it to the method, and to
        ``tol``, after which 200 are the most (of ``"exact"`` 1000; with ``tol=0`` or ``privacy`` 50), for each client
        on average.
    tol : stop when the loss falls by less than this share in three rounds, or, where methods average, when the factor
        stands still to this share or against its own noise; 0 runs all rounds.
    participation : the share of clients drawn for each round.
    random_state : seed; an int gives the same numbers everywhere. The default method draws the same for all of them.
    engine : what carries the messages; None runs all clients in this process.
    device : a device of torch that does the arithmetic, such as "cuda" (extra ``gpu``); None is this CPU, by numpy.
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
    verbose : whether to print a line for every round.

    Attributes
    ----------
    components_ : the shared factor H (k x m), rows at norm 1.
    own_components_ : with ``method="shared-own"``, what each client adds to it for itself (k x m each), or None.
    codes_ : list of the codes W_j (n_j x k), one per client in the order of ``clients_``.
    clients_ : names of the clients: positions in the list, or the distinct groups.
    history_ : one :class:`~cofactor.engines.history.Round` per round: loss, drift, bytes, seconds, participants.
    stability_ : of each component the worst cosine to its partner in restarts that are as good; a warning names those
        below .97. None where no restarts were made, NaN where there was nothing to compare.
    silhouette_, clustergram_ : with ``consensus``, how far the cluster of each component stands apart from the others
        (1 is all the way; NaN where summaries have too few components for starts to differ), and the distances between
        the components of all starts, as a picture; None without.
    reconstruction_err_ : ``|X - W H|_F / |X|_F`` over all rows; of a private fit over those in this process (else NaN).
    n_rounds_, n_iter_ : rounds that were run.
    n_components_ : the rank.
    feature_names_in_, features_ : names of the features that came in, and of the columns of ``components_``.
    marker_scores_ : scores of :meth:`markers` (k x m) where features have names and the fit is not private, or None.
    epsilon_, ledger_ : what the fit cost in all (infinite without ``privacy``), and its ledger (or None).
    choice_ : with ``method="auto"``, and with ``privacy`` in the place of "exact", the method and why it is that one.

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
        orthogonality: float = 0.0,
        consensus: int | None = None,
        init: str | None = None,
        rounds: int | None = None,
        tol: float = 1e-4,
        participation: float = 1.0,
        random_state: Any = None,
        engine: Engine | None = None,
        device: Any = None,
        privacy: Privacy | None = None,
        secure: bool = False,
        features: How = "same",
        layer: str | None = None,
        prepare: Any = None,
        options: dict[str, Any] | None = None,
        callbacks: Sequence[Callback] = (),
        verbose: int = 0,
    ) -> None:
        self.n_components = n_components
        self.method = method
        self.beta_loss = beta_loss
        self.alpha_W = alpha_W
        self.alpha_H = alpha_H
        self.l1_ratio = l1_ratio
        self.orthogonality = orthogonality
        self.consensus = consensus
        self.init = init
        self.rounds = rounds
        self.tol = tol
        self.participation = participation
        self.random_state = random_state
        self.engine = engine
        self.device = device
        self.privacy = privacy
        self.secure = secure
        self.features = features
        self.layer = layer
        self.prepare = prepare
        self.options = options
        self.callbacks = callbacks
        self.verbose = verbose

    _dtype = (np.float64, np.float32)
    told = ("beta_loss", "alpha_W", "alpha_H", "l1_ratio", "orthogonality", "consensus", "features", "layer")

    @property
    def _kind(self) -> Kind:  # type: ignore[override]
        return GAPPED if self._about.kind == GAPPED.name else NON_NEGATIVE

    def _conclude(self, score: Score, outcome: Run) -> None:
        self.reconstruction_err_ = score.error
        self.silhouette_, self.clustergram_ = outcome.silhouette, outcome.clustergram
        warn(outcome, self.tol, ConvergenceWarning)
        if self._budget is None:
            names = ("alpha_W", "alpha_H", "orthogonality")
            nothing(outcome, score, {name: value for name, value in self.get_params().items() if name in names})

    def fit(
        self,
        X: Any,
        y: Any = None,
        groups: Any = None,
        *,
        W: Any = None,
        H: Any = None,
        sample_weight: Any = None,
        cell_weight: Any = None,
    ) -> Self:
        """Fit to clients, as :meth:`Federated.fit` says.

        ``H`` (k x m) is a public factor to begin at; of codes ``W`` alone, given as X is, the fit begins at their
        least-squares factor. ``sample_weight``, one number for each row, given as X is, says how much a row counts;
        ``cell_weight`` (n x m) how much a cell counts, by ``method="exact-gaps"``; one of weight 0 was not observed.
        """
        self._fit(X, groups, self._given(W=W, H=H, sample_weight=sample_weight, cell_weight=cell_weight))
        return self

    def _given(self, W: Any = None, H: Any = None, sample_weight: Any = None, cell_weight: Any = None) -> Given:
        """Return what the fit is given besides data, or refuse what does not go together."""
        if self.init not in INITS:
            raise CofactorError(
                f"init: expected None (the method's own start), 'random' or 'custom', found {self.init!r}."
            )
        if self.init == "custom" and W is None and H is None:
            raise CofactorError("init='custom': expected H (k x m) or W to begin at: fit(X, H=...). Found neither.")
        if self.init == "random" and not (W is None and H is None):
            raise CofactorError("init='random': expected neither W nor H to begin at; take init='custom'.")
        if W is not None and self.engine is not None:
            raise CofactorError("W: expected clients in this process (engine=None) to begin at codes; give H instead.")
        if self.n_components == "auto":
            self._refuse_scan()
        if self._budget is not None:
            self._refuse_private(W, {"sample_weight": sample_weight, "cell_weight": cell_weight})
        H, W, sample_weight, cell_weight = (settled(a, here=True) for a in (H, W, sample_weight, cell_weight))
        return Given(H, W, sample_weight, cell_weight, losses.number(self.beta_loss))

    def _refuse_scan(self) -> None:
        """Refuse a rank scan that would show, or cannot read, what the fit itself could."""
        if self._budget is not None:
            raise PrivacyError("n_components='auto' is refused in a private fit: it reads all rows without noise.")
        if self.secure:
            raise PrivacyError(
                "n_components='auto' is refused with secure sums: the rank scan needs each client's summary. Give a "
                "number, found on public data, or by a scan without secure=True."
            )
        if self._kind is GAPPED:
            raise CofactorError(
                f"n_components='auto': expected a method without gaps, found {self.method!r}: the rank scan hides "
                "cells of its own. Give a number."
            )

    def _refuse_private(self, W: Any, weights: dict[str, Any]) -> None:
        """Refuse what would read rows without noise, before any row is read."""
        for name, weight in weights.items():
            if weight is not None:
                raise PrivacyError(f"{name} is refused in a private fit: noise is made for rows that count once.")
        if W is not None:
            raise PrivacyError(
                "W is refused in a private fit: the factor to begin at would be computed from all rows without noise. "
                "Give a public factor H instead."
            )

    def _asked(self, given: Given) -> tuple[str | Method, dict[str, Any]]:
        """Return the method, which another loss changes, and options of penalties and of a start that is given."""
        more = losses.options(self.beta_loss, self.alpha_W, self.alpha_H, self.l1_ratio, self.orthogonality)
        method = "exact-beta" if "beta" in more and self.method == "exact" else self.method
        begins = self.init is not None or given.H is not None or given.W is not None
        if self.consensus is not None:
            return "consensus", self._agreeing(bool(more), begins=begins, weighs=given.cells is not None)
        if given.cells is not None:
            if method not in losses.METHODS:
                raise CofactorError(f"cell_weight: expected method='exact' to go with it, found {self.method!r}.")
            if "overlap" in more or self.n_components == "auto":
                name = "orthogonality" if "overlap" in more else "n_components='auto'"
                raise CofactorError(f"cell_weight: expected no {name} beside it, found both.")
            method = "exact-gaps"
        if more and method not in losses.METHODS:
            raise CofactorError(
                "beta_loss, alpha_W, alpha_H and orthogonality: expected method='exact' to go with them, "
                f"found {self.method!r}."
            )
        at = about(method).started if begins else {}
        return method, {**at, **more, **self._options()}

    def _agreeing(self, penalized: bool, *, begins: bool, weighs: bool) -> dict[str, Any]:
        """Return the options of a consensus of many starts, or refuse what does not go with it."""
        if not (is_whole(self.consensus) and self.consensus >= 2):
            raise CofactorError(f"consensus: expected the number of starts, at least two, found {self.consensus!r}.")
        if self._budget is not None:
            raise PrivacyError("consensus is refused in a private fit: its starts run on each client's own summary.")
        others = {
            f"method={self.method!r}": self.method not in ("exact", "consensus"),
            "another beta_loss, or a penalty": penalized,
            "a start of your own (init, W, H)": begins,
            "cell_weight": weighs,
            "rounds": self.rounds is not None,
        }
        if found := [name for name, there in others.items() if there]:
            raise CofactorError(
                f"consensus: expected plain least squares from starts of its own beside it, found {', '.join(found)}; "
                "options={'settles': 30} says how many rounds follow it."
            )
        return {"starts": int(self.consensus), "settles": SETTLES, **self._options()}

    def _watchers(self) -> list[Any]:
        return [*self.callbacks, tell] if self.verbose else list(self.callbacks)

    def _rank(self, facts: Facts, data: list[Data]) -> int:
        if self.n_components != "auto":
            return super()._rank(facts, data)
        if facts.groups is not None:
            raise CofactorError(
                "n_components='auto': expected the same features at every client, found clients that lack some; give a "
                "number, or take features='intersection'."
            )
        return select_rank(data, seed=seed_of(self.random_state), engine=self.engine).suggestion

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = True
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
