"""Every option of estimators, runs, files, methods and the command line has a decision where a run is private.

Either it is refused, before anything of the data is read; or it is allowed, for the reason that is written here: what
it changes does not depend on the data, or has a bound and is paid for. An option without a decision fails.
"""

from __future__ import annotations

import inspect
from dataclasses import fields
from typing import Any, NamedTuple

import anndata
import numpy as np
import pytest
import typer

from cofactor import FederatedBMF, FederatedKMeans, FederatedMF, FederatedNMF
from cofactor.assurance.attack_rows import units
from cofactor.assurance.worst_case import kinds, scaled, small_clients, step_of
from cofactor.cli.app import app
from cofactor.engines.loop import run
from cofactor.jobs.config import Config
from cofactor.jobs.settings import Settings
from cofactor.methods import catalog
from cofactor.methods.build import Facts, build
from cofactor.plan import ByShare, Plan, Stop, Stream
from cofactor.privacy import Privacy, PrivacyError
from cofactor.privacy.grid import on_grid
from cofactor.types import CofactorError


class Refused(NamedTuple):
    """A value that a private run refuses."""

    value: Any


class Allowed(NamedTuple):
    """Why an option is allowed, and a value to try."""

    why: str
    value: Any = None


RECORD, CLIENT = Privacy(1, 1e-3), Privacy(1, 1e-3, "client")
BUDGET = "it is the budget, or says how it is spent"
LOCAL = "what it changes stays with the client, inside its bound"
PUBLIC = "a public number, chosen before the data are seen"
RELEASED = "it sees released values only"
WORDS = "it changes what is said, not what is released"

NMF: dict[str, Refused | Allowed] = {
    "n_components": Refused("auto"),
    "method": Refused("oneshot"),
    "beta_loss": Refused("kullback-leibler"),
    "alpha_W": Refused(0.1),
    "alpha_H": Refused(0.1),
    "l1_ratio": Allowed("a penalty of weight zero, else alpha_W is refused", 0.5),
    "orthogonality": Refused(0.1),
    "init": Allowed("the start of a seed", "random"),
    "consensus": Refused(5),
    "rounds": Allowed(BUDGET, 2),
    "tol": Allowed(RELEASED, 1e-2),
    "participation": Allowed("clients are drawn by the seed, and noise is not made smaller for it", 0.5),
    "random_state": Allowed("the seed of everything but the noise", 1),
    "engine": Allowed("it carries messages that have their noise"),
    "device": Refused("cpu"),
    "privacy": Allowed(BUDGET, RECORD),
    "secure": Allowed("sums of messages, each with its part of the noise", True),
    "features": Refused("union"),
    "layer": Allowed("which matrix of a client is read"),
    "prepare": Refused("hvg=2"),
    "options": Refused({"start": "svd"}),
    "callbacks": Allowed(RELEASED, [lambda line, shared: False]),
    "verbose": Allowed(RELEASED, 1),
}
BMF: dict[str, Refused | Allowed] = {
    "n_components": Allowed(PUBLIC, 2),
    "method": Refused("boolean-exact"),
    "align": Allowed(LOCAL, None),
    "aggregate": Allowed("of noisy counts", "or"),
    "sweeps": Allowed("none are made in a private fit", 3),
    "rounds": Allowed("methods of one round have no other; of felb and falb it is part of the plan that is paid for"),
    "threshold": Allowed(PUBLIC, 0.5),
    "participation": NMF["participation"],
    "random_state": NMF["random_state"],
    "engine": NMF["engine"],
    "device": NMF["device"],
    "privacy": Allowed(BUDGET, CLIENT),
    "secure": NMF["secure"],
    "features": NMF["features"],
    "layer": NMF["layer"],
    "prepare": Refused("scale"),
    "options": Refused({"sweeps": 1}),
    "callbacks": NMF["callbacks"],
}
FIT: dict[str, Refused | Allowed] = {
    "X": Allowed("the rows"),
    "y": Allowed("never looked at"),
    "groups": Refused([0, 0, 1]),
    "W": Refused([[1.0]]),
    "H": Allowed("declared public by whoever gives it; dp-moments takes none"),
    "sample_weight": Refused([1.0]),
    "cell_weight": Refused([[1.0]]),
}
NO_BUDGET = {FederatedKMeans: "has no privacy", FederatedMF: "has no privacy"}


class Unread:
    """Data that nobody may look at."""

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("__") and name not in ("__array__", "__len__"):
            return object.__getattribute__(self, name)
        pytest.fail(f"the data were read: {name}")


def parameters(what: Any) -> set[str]:
    return set(inspect.signature(what).parameters) - {"self"}


def model_of(estimator: Any, **more: Any) -> Any:
    usual: dict[str, Any] = {"n_components": 2, "random_state": 0}
    usual |= (
        {"method": "asso", "privacy": CLIENT} if estimator is FederatedBMF else {"method": "exact", "privacy": RECORD}
    )
    return estimator(**(usual | more))


CASES = [(FederatedNMF, name) for name in NMF] + [(FederatedBMF, name) for name in BMF]
Xs = [np.random.default_rng(j).random((6, 4)) for j in range(4)]


def test_every_option_of_an_estimator_has_a_decision() -> None:
    assert set(NMF) == parameters(FederatedNMF.__init__)
    assert set(BMF) == parameters(FederatedBMF.__init__)
    assert set(FIT) == parameters(FederatedNMF.fit) | parameters(FederatedBMF.fit)
    for estimator in NO_BUDGET:
        assert "privacy" not in parameters(estimator.__init__)


@pytest.mark.parametrize(("estimator", "name"), CASES, ids=lambda case: getattr(case, "__name__", case))
@pytest.mark.filterwarnings("ignore")
def test_options_of_estimators_are_as_decided(estimator: Any, name: str) -> None:
    decided = (NMF if estimator is FederatedNMF else BMF)[name]
    if isinstance(decided, Refused):
        with pytest.raises(CofactorError):
            model_of(estimator, **{name: decided.value}).fit(Unread())
        return
    more = {} if decided.value is None else {name: decided.value}
    data = Xs if estimator is FederatedNMF or name == "threshold" else [(X > 0.5).astype(int) for X in Xs]
    model = model_of(estimator, **more).fit(data)
    assert model.epsilon_ == pytest.approx(1.0)


@pytest.mark.parametrize("name", [name for name, decided in FIT.items() if isinstance(decided, Refused)])
def test_what_a_private_fit_is_given_is_as_decided(name: str) -> None:
    with pytest.raises(PrivacyError, match="refused"):
        model_of(FederatedNMF).fit(Unread(), **{name: FIT[name].value})


def test_a_method_object_with_a_budget_is_a_private_fit() -> None:
    """Whatever a budget refuses is refused where the method brings it along, too; and rows are not counted."""
    made = catalog.make("dp-moments", 2, privacy=RECORD)
    for name in ("n_components", "features", "prepare", "device"):
        with pytest.raises(CofactorError):
            model_of(FederatedNMF, method=made, privacy=None, **{name: NMF[name].value}).fit(Unread())
    for name in ("groups", "W", "sample_weight", "cell_weight"):
        with pytest.raises(PrivacyError):
            model_of(FederatedNMF, method=made, privacy=None).fit(Unread(), **{name: FIT[name].value})
    with pytest.warns(UserWarning, match="Mind that"):
        model = model_of(FederatedNMF, method=made, privacy=None).fit([X[:j] for j, X in enumerate(Xs)])
    assert model.epsilon_ == pytest.approx(1.0)
    assert model.marker_scores_ is None
    for refused in (model.markers, lambda: model.partial_fit(Xs[0])):
        with pytest.raises(PrivacyError):
            refused()


@pytest.mark.filterwarnings("ignore")
def test_parameters_that_are_set_after_a_fit_do_not_change_what_it_was(tmp_path: Any) -> None:
    """A private model went on without noise and kept its epsilon; one without noise was saved with a budget."""
    private = model_of(FederatedNMF).fit(Xs).set_params(privacy=None)
    for refused in (lambda: private.partial_fit(Xs[0]), lambda: private.markers(Xs[0])):
        with pytest.raises(PrivacyError, match="refused"):
            refused()
    private.save(tmp_path / "private.npz")
    assert FederatedNMF.load(tmp_path / "private.npz").privacy.epsilon == 1.0
    held = anndata.AnnData(Xs[0])
    private.write(held)
    assert held.uns["cofactor"]["epsilon"] == pytest.approx(1.0)
    assert "error" not in held.uns["cofactor"]
    FederatedNMF.load(tmp_path / "private.npz").write(held)
    assert held.uns["cofactor"]["epsilon"] == 1.0
    plain = model_of(FederatedNMF, privacy=None).fit(Xs).set_params(privacy=RECORD)
    plain.save(tmp_path / "plain.npz")
    assert FederatedNMF.load(tmp_path / "plain.npz").privacy is None
    plain.write(held)
    assert "epsilon" not in held.uns["cofactor"]


# --- plans and runs from Python ---

PLAN: dict[str, Refused | Allowed] = {
    "rounds": Allowed(BUDGET, 3),
    "participation": Refused(ByShare(2)),
    "stop": Allowed(RELEASED, Stop(1e-3)),
    "seed": Allowed(PUBLIC, 3),
    "privacy": Allowed(BUDGET, CLIENT),
    "secure": NMF["secure"],
    "stream": Refused(Stream(3)),
}
PRIVACY: dict[str, str] = {
    **dict.fromkeys(("epsilon", "delta", "unit", "clip", "ledger"), BUDGET),
    "curious": "how many clients the noise does not count on",
    "insecure_seed": "every total then says: private: no",
    "rows": "declared public by whoever gives it",
}
RUN: dict[str, Allowed] = {
    "method": Allowed("it has its budget"),
    "Xs": Allowed("the rows"),
    "plan": Allowed("as decided for its fields"),
    "engine": NMF["engine"],  # type: ignore[dict-item]
    "callbacks": NMF["callbacks"],  # type: ignore[dict-item]
    "start": Allowed("declared public by whoever gives it"),
    "checkpoint": Allowed("released values only, and no round is released twice"),
    "watch": Allowed("messages with their noise"),
    "begun": Allowed("how many rounds were released"),
    "charges": Allowed(BUDGET),
    "work": Allowed("done by clients on their own; jobs let those of private runs say nothing"),
    "how": Allowed("as decided for the fields of a plan"),
}


def test_every_field_of_a_plan_and_every_argument_of_a_run_has_a_decision() -> None:
    assert set(PLAN) == {f.name for f in fields(Plan) if f.init}
    assert set(PRIVACY) == {f.name for f in fields(Privacy)}
    assert set(RUN) == parameters(run)


@pytest.mark.parametrize("name", PLAN)
def test_plans_are_as_decided(name: str) -> None:
    decided = PLAN[name]
    given = {"privacy": CLIENT, "rounds": 2} | {name: decided.value}
    if isinstance(decided, Refused):
        with pytest.raises(PrivacyError):
            run(build("fedavg", 2, Plan(2, privacy=CLIENT), Facts(4, 4))[0], Unread(), Plan(**given))
        return
    plan = Plan(**given)
    outcome = run(build("fedavg", 2, plan, Facts(4, 4))[0], Xs, plan)
    assert outcome.epsilon <= 1 + 1e-9


# --- files ---

SETTINGS: dict[str, Refused | Allowed] = {
    "inputs": Allowed("the rows"),
    "rank": Allowed(PUBLIC, 3),
    "method": Refused("oneshot"),
    "boolean": Refused(True),
    "rounds": Allowed(BUDGET, 5),
    "tol": NMF["tol"],
    "seed": Allowed(PUBLIC, 3),
    "participation": NMF["participation"],
    "engine": NMF["engine"],
    "device": Refused("cpu"),
    "scheduler": Allowed("where workers are"),
    "features": Refused("intersection"),
    "layer": NMF["layer"],
    "leave_out": Allowed("names of features, which are public", "g1"),
    "cell_weights": Refused("weights"),
    "row_weights": Refused("weights"),
    "prepare": Refused("tfidf"),
    "group_by": Refused("ward"),
    "split": Refused(3),
    "by": Allowed("of a split, which is refused", "rows"),
    "label": Allowed("of a split, which is refused", "ward"),
    "alpha": Allowed("of a split, which is refused", 0.3),
    "alpha_w": Refused(0.1),
    "alpha_h": Refused(0.1),
    "l1_ratio": Refused(0.5),
    "image": Allowed("how features are drawn", "2x2"),
    "ratings": Refused(True),
    "users_as_clients": Refused(True),
    "rated_only": Refused(True),
    "titles": Refused("titles.csv"),
    "holdout": Refused("random"),
    "holdout_share": Allowed("without --holdout, which is refused, it is not looked at", 0.3),
    "duplicates": Allowed("without --ratings, which is refused, it is not looked at", "mean"),
    "epsilon": Allowed(BUDGET, 2.0),
    "delta": Allowed(BUDGET, 1e-5),
    "unit": Allowed(BUDGET, "client"),
    "clip": Allowed(BUDGET, 2.0),
    "rows": Allowed(PRIVACY["rows"], 100),
    "ledger": Allowed(BUDGET, "site.jsonl"),
    "secure": NMF["secure"],
    "keys": Refused("keys"),  # without --secure
    "curious": Refused(1),  # the same
    "insecure_noise_seed": Allowed("every total then says: private: no", 3),
    "why": Allowed(WORDS, "so"),
    "forgotten": Allowed("who was taken out of another run, which was not private", ["a"]),
    "options": Refused({"start": "svd"}),
}


def test_every_setting_of_a_job_has_a_decision() -> None:
    assert set(SETTINGS) == {f.name for f in fields(Settings)}


@pytest.mark.parametrize("name", SETTINGS)
def test_settings_of_jobs_are_as_decided(name: str) -> None:
    """The files are not there: whoever would read them fails with another error."""
    decided, one = SETTINGS[name], ["nowhere.npy"]
    usual: dict[str, Any] = {"inputs": one, "rank": 2, "epsilon": 1.0, "delta": 1e-6}
    if isinstance(decided, Refused):
        with pytest.raises(CofactorError) as caught:
            Config(**usual | {name: decided.value})
        assert "nowhere" not in str(caught.value)
    elif decided.value is not None:
        assert Config(**usual | {name: decided.value}).privacy is not None


def test_clients_cut_out_of_one_file_are_refused() -> None:
    """Who has a row depends on the other rows: one row less moved every client's message by far more than the bound."""
    usual: dict[str, Any] = {"inputs": ["nowhere.npy"], "rank": 2, "epsilon": 1.0, "delta": 1e-6, "split": 5}
    for more in ({}, {"by": "rows"}, {"secure": True}, {"secure": True, "unit": "client"}):
        with pytest.raises(PrivacyError, match=r"cut out of one file"):
            Config(**usual | more)
    assert Config(**usual | {"split": 1}).privacy is not None


def test_a_matrix_is_one_client() -> None:
    """Its rows were in two clients at the price of one, as those of a file that is given twice."""
    X = np.random.default_rng(0).random((12, 5))
    private = Privacy(1.0, 1e-6)
    method, _ = build("dp-moments", 2, Plan(privacy=private), Facts(2, 5))
    for fit in (FederatedNMF(2, privacy=private).fit, lambda Xs: run(method, Xs)):
        with pytest.raises(PrivacyError, match="client 2: expected each matrix once, found that of 0 again"):
            fit([X, X[:3].copy(), X])
        for again in (X[:], X[-2:], X[::-1], X[::2]):
            with pytest.raises(PrivacyError, match="client 2: expected each matrix once, found the rows of 0 again"):
                fit([X, X[:3].copy(), again])
    with pytest.warns(UserWarning, match="Mind that"):
        FederatedNMF(2, privacy=private).fit([X[0].tolist()] * 12)  # rows of one client


# --- methods ---

METHOD_OPTIONS: dict[str, Refused | Allowed] = {
    "start": Refused("svd"),
    "groups": Allowed("not looked at: features that clients lack are refused before", (0,) * 16),
    "codes_penalty": Refused((0.1, 0.0)),
    "factor_penalty": Refused((0.1, 0.0)),
    "overlap": Refused(0.1),
    "local_rank": Allowed("of a start that is not made", 4),
    "restarts": Allowed("of a start that is not made", 2),
    "privacy": Allowed(BUDGET),
    "parts": Allowed("settled by the plan; others are refused without masks"),
    "rounds": Allowed(BUDGET, 2),
    "share": Allowed("of felb and falb the rounds that are paid for; votes, which would wait for all, refuse it"),
    "width": Allowed("a public number: how many columns a sketch has", 4),
    "gram_share": Allowed("how the budget is split", 0.3),
    "aggregate": Allowed("of noisy counts", "or"),
    "sums": Allowed("the sum of clipped updates", True),
    **{
        name: Allowed(LOCAL, value)
        for name, value in {
            "momentum": 0.2,
            "gamma": 0.5,
            "common_start": True,
            "anchor": 0.3,
            "code_steps": 2,
            "factor_steps": 2,
            "constant": True,
            "codes": None,
            "components": None,
            "by_rows": False,
            "weight": 0.3,
            "printed_order": True,
            "size": 3,
            "rho": 0.1,
            "outliers": 0.5,
            "bound": 0.1,
            "steps": 2,
            "rate": None,
            "align": None,
            "sweeps": 1,
        }.items()
    },
}


def private_form(name: str, **options: Any) -> Any:
    entry = catalog.CATALOG[name]
    unit = "record" if entry.private or name == "exact" else "client"
    usual = {"sweeps": 0} if entry.kind == "boolean" and "sweeps" in entry.options else {}
    ask = Privacy(8, 1e-6, unit, insecure_seed=1)  # type: ignore[arg-type]
    rounds = None if entry.private or "rounds" in options else 2
    return build(name, 2, Plan(rounds, privacy=ask), Facts(3, 16), usual | options)[0]


def forms() -> list[tuple[str, str]]:
    """Methods that have a private form, and their options; votes have no sweeps in one."""
    found = []
    for entry in catalog.ENTRIES:
        try:
            private_form(entry.name)
        except CofactorError:
            continue
        found += [(entry.name, option) for option in entry.options if (entry.kind, option) != ("boolean", "sweeps")]
    return found


FORMS = forms()
ONE_OF_ALIKE = {"fnmf-lap-rho", "fnmf-sinkhorn", "fnmf-sinkhorn-rho", "fnmf-knn", "grecond", "mebf", "zhang", "elbmf"}


def test_every_option_of_a_method_with_a_private_form_has_a_decision() -> None:
    assert {option for _, option in FORMS} == set(METHOD_OPTIONS)


@pytest.mark.parametrize(("name", "option"), [form for form in FORMS if form[0] not in ONE_OF_ALIKE])
def test_options_of_methods_are_as_decided(name: str, option: str) -> None:
    """What is allowed moves a release by no more than its bound, by a few rows that have broken bounds before."""
    decided = METHOD_OPTIONS[option]
    if isinstance(decided, Refused):
        with pytest.raises(CofactorError):
            private_form(name, **{option: decided.value})
        return
    method = scaled(private_form(name, **({} if decided.value is None else {option: decided.value})), 0.0)
    start, (base, *_) = small_clients(method, 1)
    tried = [
        u for u in units(method, base[:4]) if u[0] in ("huge, float64, dense", "one square survives, float32, csr")
    ]
    for t in kinds(method):
        for shared in method.late(start, t):
            for by, before, after in tried or list(units(method, base[:4]))[:2]:
                new = step_of(method, after, shared, t, np.random.default_rng(0))
                old = {} if before is None else step_of(method, before, shared, t, np.random.default_rng(0)).arrays
                for array, a in new.arrays.items():
                    moved = np.linalg.norm(np.ravel(a - old.get(array, 0.0)))
                    assert moved <= on_grid(new.cost[array].clip, np.size(a)) * (1 + 1e-9), (array, by)


def test_votes_that_wait_for_all_clients_have_no_private_form() -> None:
    """How long they wait depends on who is there; the schedules of felb are as long as was paid for."""
    with pytest.raises(CofactorError):
        private_form("asso", share=0.5)
    assert private_form("felb", share=0.5).rounds == private_form("felb").rounds == 2


# --- verbs of the command line ---

VERBS = {
    "fit": "as decided for settings",
    "consensus": "has no options of privacy, and the method no private form",
    "resume": "no round is released twice",
    "transform": "at the client, with released values",
    "evaluate": "says what was spent; --pooled is refused",
    "rank": "without noise, so not into the folder of a private run",
    "passports": "refused: there are none",
    "markers": "refused",
    "report": "released values only",
    "forget": "refused: what was released stays released",
    "recommend": "of ratings, which have no private form",
    "similar": "of ratings, which have no private form",
    "audit": "released values and made-up rows",
    "privacy plan": "public numbers only",
    "privacy spend": "what was paid",
    "ledger new": "what may be paid",
    "ledger show": "what was paid",
    "ledger verify": "what was paid",
    "keys make": "keys of clients",
    "keys show": "keys of clients",
    "serve": "policies of clients say what they take part in",
    "join": "policies of clients say what they take part in",
    "approve": "policies of clients say what they take part in",
    "watch": "what the history of a run holds",
    "federation init": "certificates",
    "federation invite": "certificates",
    "reproduce": "public data",
    "demo": "public data",
    "compile": "made-up data",
    "doctor": "made-up data",
    "methods": "no data",
}


def test_every_verb_has_a_decision() -> None:
    found = set()
    for name, command in typer.main.get_command(app).commands.items():  # type: ignore[attr-defined]
        inner = vars(command).get("commands")
        found |= {f"{name} {one}" for one in inner} if inner else {name}
    assert found == set(VERBS)
