"""Whoever asks for a run, without a server: what is done after each way in which a job can end."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.helpers.client_jobs import terms_of

from cofactor.engines.flare_clients import Patience
from cofactor.engines.flare_refusals import LeftOut, Refused, Short
from cofactor.federation import driver, server_job
from cofactor.federation.invite import Federation
from cofactor.federation.server_job import outcome
from cofactor.federation.terms import RunTerms
from cofactor.privacy.errors import ForgedShareError
from cofactor.types import CofactorError


class Scripted(driver.Driver):
    """A driver whose jobs end as told; each may have come some rounds further."""

    def __init__(self, out, ends, terms):
        made = Federation(Path("federation"), "federation", "localhost", 1, 2, [], "", {})
        super().__init__(made, terms, out, lambda kind, line: None)
        self.ends, self.asked_for = list(ends), []

    def _submit(self):
        self.asked_for.append(self.terms.names)
        return "job"

    def _follow(self, job):
        error, rounds = self.ends.pop(0)
        self.seen["history.jsonl"] += rounds
        return outcome(error)

    def surely(self, work, vanished=None):
        return work()

    def late(self):
        return []


def runs(tmp_path, ends, terms=None):
    tmp_path.mkdir(exist_ok=True)
    (tmp_path / "events.jsonl").touch()
    (tmp_path / "manifest.json").write_text("{}")
    made = Scripted(tmp_path, ends, terms or terms_of(secure=True))
    return made


def test_a_job_that_ended_early_is_submitted_again(tmp_path):
    made = runs(tmp_path, [(Short("gone."), 3), (Short("gone."), 0), (None, 2)])
    made.run()
    assert len(made.asked_for) == 3
    said = [json.loads(line)["what"] for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert said == ["the job has ended: gone. It is submitted again."] * 2


def test_jobs_that_die_again_and_again_without_a_word_end_the_run(tmp_path):
    """They were submitted every few seconds for an hour."""

    class Dying(Scripted):
        def _follow(self, job):
            return self._fetch(job, "FINISHED:ABNORMAL")

    (tmp_path / "events.jsonl").touch()
    made = Dying(tmp_path, [], terms_of(secure=True))
    made.session = SimpleNamespace(download_job_result=lambda job, folder: folder, close=lambda: None)
    with pytest.raises(CofactorError, match=r"it was abnormal, before it could say why; see console\.txt"):
        made.run()
    assert len(made.asked_for) == driver.IDLE + 1


def test_shares_that_are_forged_again_and_again_end_the_run_in_words(tmp_path):
    forged = ForgedShareError("the shares of the seed of client 1 do not give the announced seed.")
    made = runs(tmp_path, [(forged, 1), *[(forged, 0)] * 9])
    with pytest.raises(CofactorError, match="several clients have told shares that they do not hold"):
        made.run()
    assert len(made.asked_for) == server_job.TRIES + 2  # the one that has come further does not count
    again = runs(tmp_path / "2", [(forged, 0), (forged, 0), (None, 4)])
    again.run()


def test_a_refusal_ends_it_and_a_client_that_is_left_out_does_not(tmp_path):
    with pytest.raises(CofactorError, match="client bob: its policy does not allow this method"):
        runs(tmp_path, [(Refused("method", "bob"), 0)]).run()
    terms = RunTerms("r1", terms_of().config, Patience(least=3))
    made = runs(tmp_path / "2", [(LeftOut(["bob"]), 0), (None, 5)], terms)
    (tmp_path / "2" / "manifest.json").write_text("{}")
    with pytest.raises(CofactorError, match="expected a run folder"):  # the next job brings its own
        made.run()
    assert made.asked_for == [["alice", "bob", "carol", "dave"], ["alice", "carol", "dave"]]
    private = RunTerms("r1", terms_of(method="dp-nmf", epsilon=1.0, delta=1e-6).config, Patience(least=3))
    with pytest.raises(CofactorError, match="bob: given up, and a private run cannot begin anew"):
        runs(tmp_path / "3", [(LeftOut(["bob"]), 0)], private).run()


class Connected:
    """A session that says when clients have connected last."""

    def __init__(self, **seen):
        self.seen = seen

    def get_connected_client_list(self):
        return [SimpleNamespace(name=name, last_connect_time=at) for name, at in self.seen.items()]


def test_a_client_that_was_started_anew_is_not_waited_for_until_it_is_given_up(tmp_path, monkeypatch):
    """It waited for the whole of ``silence``, a minute by default, before it took part again."""
    monkeypatch.setattr(driver.time, "time", lambda: 1000.0)
    for terms, anew in ((terms_of(), True), (terms_of(method="dp-nmf", epsilon=1.0, delta=1e-6), False)):
        made = runs(tmp_path / str(anew), [], terms)
        lines = [json.dumps(server_job.event("bob", what)) for what in ("does not answer", "answers again")]
        made._progress({"events.jsonl": lines[:1]})
        for at, back in ((900.0, False), (1000.0 + driver.RETURN + 1, False), (1000.0 + driver.ANEW + 1, anew)):
            made.session = Connected(bob=at, alice=2000.0)
            assert made._is_back() is back
        made._progress({"events.jsonl": lines[1:]})
        assert made._is_back() is False


def test_clients_that_are_not_connected_are_named_when_a_job_is_submitted(tmp_path):
    """`cofactor fit` waited for them without a word."""
    made = runs(tmp_path, [])
    made.session = Connected(alice=1.0, carol=2.0)
    made._say_who_is_missing()
    assert "not connected to the server: bob, dave;" in (tmp_path / "events.jsonl").read_text()
    made.session = Connected(alice=1.0, bob=1.0, carol=2.0, dave=1.0)
    made._say_who_is_missing()
    assert len((tmp_path / "events.jsonl").read_text().splitlines()) == 1


class Stored:
    """A session of a server that was started anew: to it, job "lost" runs and yet cannot be ended."""

    def __init__(self, api, **jobs):
        self.api, self.jobs = api, jobs

    def delete_job(self, job):
        if self.jobs[job] == "RUNNING":
            raise self.api.JobNotDone(f"job {job} is still running")
        del self.jobs[job]

    def abort_job(self, job):
        if job == "lost":
            raise self.api.InternalError(f"server internal error: Job {job} is not running.")
        self.jobs[job] = "FINISHED:ABORTED"


def test_a_job_that_went_with_its_server_does_not_keep_a_client_from_being_forgotten(tmp_path):
    """``forget`` asked for ten minutes that it be deleted, and ended with an error and the old factor."""
    api = pytest.importorskip("nvflare.fuel.flare_api.api_spec")
    made = runs(tmp_path, [])
    made.session = Stored(api, lost="RUNNING", slow="RUNNING", done="FINISHED:COMPLETED")
    for job in ("lost", "done"):
        made._delete(job)
    with pytest.raises(api.JobNotDone):  # it was ended, and is deleted when that is asked again
        made._delete("slow")
    made._delete("slow")
    assert made.session.jobs == {"lost": "RUNNING"}
