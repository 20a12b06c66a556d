"""What gets no privacy, and in which words that is said."""

import re
from dataclasses import replace

import pytest
from tests.helpers.private import built, mixtures, moments, privacy

from cofactor import FederatedBMF, FederatedNMF, run
from cofactor.engines.loop import run_stream
from cofactor.engines.secure import Secure
from cofactor.methods import catalog
from cofactor.methods.build import Facts, build
from cofactor.plan import ByShare, Plan
from cofactor.privacy.errors import ParameterError, PrivacyError
from cofactor.types import CofactorError

RECORD = (
    "unit='record' is refused: this method sends what a local solver found, and no bound is known for how much one "
    "record moves that. Ask for unit='client', or use 'dp-moments' or 'dp-nmf', which send sums over records."
)
BOOLEAN = "Ask for unit='client' (--unit client): no method for zeros and ones has another unit."
START = (
    "privacy is refused: the start of this method reads private data and releases what it saw without noise. "
    "Use start='random' or a public factor."
)
SKETCH = (
    "privacy is refused: a sketch that all parties know is no protection. Its columns are rows or features in plain "
    "sight, and all of the data are recovered after ceil(n/d) rounds. Use 'dp-moments' or 'dp-nmf'."
)
NO_BUFFER = (
    "secure aggregation of asynchronous updates is refused: the server merges every update as it arrives, without a "
    "buffer of several to add up, so it would see each one. Run the method in rounds."
)
NOT_PRIVATE = (
    "privacy is refused: in an asynchronous stream a client sends as many updates as its speed allows, so no plan of "
    "rounds can pay for them beforehand. Run the method in rounds."
)


@pytest.fixture
def Xs(rng):
    return mixtures(rng)


@pytest.mark.parametrize("name", ["fnmf-lap", "fnmf-sinkhorn", "fedavg", "fedprox", "fedmavg", "syn-sd", "asyn-sd"])
def test_solver_outputs_get_no_record_level_privacy(name, Xs):
    with pytest.raises(PrivacyError) as refusal:
        FederatedNMF(3, method=name, privacy=privacy()).fit(Xs)
    assert str(refusal.value) == RECORD


@pytest.mark.parametrize("name", ["felb", "falb", "asso", "grecond"])
def test_boolean_solver_outputs_get_no_record_level_privacy(name, Xs):
    with pytest.raises(PrivacyError) as refusal:
        FederatedBMF(3, method=name, privacy=privacy()).fit([(X > 1).astype(int) for X in Xs])
    assert str(refusal.value) == RECORD.split("Ask", maxsplit=1)[0] + BOOLEAN


@pytest.mark.parametrize("start", ["summaries", "svd", "moments", "lap"])
def test_a_start_that_reads_private_data_is_refused(start, Xs):
    with pytest.raises(PrivacyError) as refusal:
        FederatedNMF(3, options={"start": start}, privacy=privacy()).fit(Xs)
    assert str(refusal.value) == START


@pytest.mark.parametrize("name", ["syn-ssd-u", "syn-ssd-uv"])
@pytest.mark.parametrize("unit", ["record", "client"])
def test_sketch_sharing_gets_no_privacy(name, unit, Xs):
    with pytest.raises(PrivacyError) as refusal:
        FederatedNMF(3, method=name, privacy=privacy(unit=unit)).fit(Xs)
    assert str(refusal.value) == SKETCH


@pytest.mark.parametrize("name", catalog.names("blocks"))
@pytest.mark.parametrize("unit", ["record", "client"])
def test_blocks_get_no_privacy(name, unit, Xs):
    with pytest.raises(PrivacyError) as refusal:
        built(catalog.make(name, 3, shape=(60, 60)), privacy(unit=unit), clients=1, rounds=None)
    assert str(refusal.value) == SKETCH
    with pytest.raises(PrivacyError) as refusal:
        FederatedNMF(3, method=name, privacy=privacy(unit=unit)).fit(Xs[0])
    assert str(refusal.value) == SKETCH


def test_asynchronous_updates_are_neither_masked_nor_private(Xs):
    with pytest.raises(PrivacyError) as refusal:
        run_stream(catalog.make("asyn-sd", 3), Xs, engine=Secure())
    assert str(refusal.value) == NO_BUFFER
    private = built("asyn-sd", privacy(unit="client"))
    with pytest.raises(PrivacyError) as refusal:
        run_stream(private, Xs)
    assert str(refusal.value) == NOT_PRIVATE


@pytest.mark.parametrize("name", ["oneshot", "oneshot-lap", "fedmgs"])
def test_methods_without_a_private_form_say_so(name, Xs):
    with pytest.raises(PrivacyError, match="privacy is refused: this method has no private form"):
        FederatedNMF(3, method=name, privacy=privacy(unit="client")).fit(Xs)


@pytest.mark.parametrize("name", catalog.CATALOG)
def test_advice_of_refusals_is_for_the_same_data_and_works_as_it_is_told(name):
    """Whoever follows the advice of a refusal word for word gets a method for the same data, and no second refusal."""
    facts, kind = Facts(4, 20, 100), catalog.CATALOG[name].kind
    own = privacy() if catalog.CATALOG[name].private else None
    for plan in (Plan(privacy=privacy()), Plan(privacy=privacy(unit="client")), Plan(privacy=own, secure=True)):
        try:
            build(name, 3, plan, facts)
        except PrivacyError as refusal:
            text = str(refusal)
        else:
            continue
        advised = [word for word in re.findall(r"'([a-z-]+)'", text) if word in catalog.CATALOG]
        assert advised or "No method for" in text or "start='random'" in text or "unit='client'" in text
        for other in advised:
            by = plan.privacy is not None and not catalog.CATALOG[other].private
            asked = replace(plan, privacy=privacy(unit="client")) if by and "unit='client'" in text else plan
            if "secure summation ('exact-als'" in text:
                asked = Plan(secure=True)
            build(other, 3, asked, facts, {"start": "moments"} if "start='moments'" in text else {})
            same = catalog.CATALOG[other].kind == kind or kind in ("blocks", "gaps")
            assert same or "No method for" in text, f"{name}: {text}"


def test_privacy_is_asked_for_once(Xs):
    method = moments(privacy(1.0))
    for ask in (lambda: built(method, privacy(2.0)), lambda: run(method, Xs, Plan(privacy=privacy(2.0)))):
        with pytest.raises(PrivacyError, match="privacy was asked for twice"):
            ask()
    assert built(method, privacy(1.0)) is method


def test_draws_that_show_the_rows_are_refused(Xs):
    for ask in (
        lambda: Plan(participation=ByShare(2), privacy=privacy()),
        lambda: run(moments(privacy()), Xs, participation=ByShare(2)),
    ):
        with pytest.raises(PrivacyError, match="a draw by share shows how many rows clients have"):
            ask()


@pytest.mark.parametrize("name", catalog.names("private"))
def test_a_private_method_needs_privacy(name, Xs):
    with pytest.raises(ParameterError, match=f"method {name!r} adds noise: expected epsilon and delta. Found none."):
        FederatedNMF(3, method=name).fit(Xs)
    with pytest.raises(CofactorError, match=f"method {name!r} adds noise: expected privacy=Privacy"):
        catalog.make(name, 3)
