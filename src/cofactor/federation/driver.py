"""Whoever asks for a run: submit it, follow it, submit it again when it was interrupted, and bring the result back."""

from __future__ import annotations

import io
import json
import logging
import secrets
import tempfile
import time
from collections.abc import Callable
from contextlib import redirect_stdout, suppress
from functools import partial
from pathlib import Path
from typing import Any

from cofactor.engines.flare_clients import GIVEN_UP, SILENT
from cofactor.engines.history import EVENTS, event
from cofactor.federation import kits
from cofactor.federation.going_on import copy
from cofactor.federation.invite import Federation, unreachable
from cofactor.federation.terms import RunTerms
from cofactor.files import by_time, lines_of
from cofactor.jobs.client_folder import as_json, write
from cofactor.jobs.folder import RunFolder
from cofactor.types import CofactorError

POLL, RECONNECT, RETURN, ANEW = 1.0, 600.0, 5.0, 15.0
"""Seconds between two looks, for a server to come back, of a client's sign of life after it was given up, and after it
fell silent: a line that was cut is whole again by then, for the job too."""
IDLE = 20
"""So many jobs in a row may come to nothing."""
DIED, UNSAID = "abnormal", "it was {}, before it could say why; see console.txt and log.txt of server and clients."
NOTE = "federation.json"
SERVER, BACK = "the server ", "the server answers again"
"""How lines begin that say how the server is; and the last of them, when all is well."""
Tell = Callable[[str, dict[str, Any]], Any]
"""("history" or "event", the line)."""


class Driver:
    """One run, over as many jobs as it takes.

    ``asked`` are all clients that were to take part, ``jobs`` what was submitted so far, ``old`` jobs whose results are
    deleted at the server when the run is done.
    """

    def __init__(
        self,
        federation: Federation,
        terms: RunTerms,
        out: Path,
        tell: Tell,
        *,
        asked: list[str] | None = None,
        jobs: list[str] | None = None,
        old: list[str] | None = None,
    ) -> None:
        self.federation, self.terms, self.out, self.tell = federation, terms, out, tell
        self.asked, self.jobs, self.old = asked or terms.names, jobs or [], old or []
        self.unfit: set[str] = set()
        self.left, self.taken = dict[str, float](), list[str]()
        self.session: Any = None
        self.own = lines_of(out / EVENTS)
        self.seen = {"history.jsonl": 0, EVENTS: 0}
        self.lost, self.quiet = dict[str, float](), dict[str, float]()
        self.born: Any = None

    def run(self) -> RunFolder:
        """Submit jobs until one is done; refusals and errors end it, and so do jobs that come to nothing."""
        idle, until = 0, time.monotonic() + self.terms.patience.approval
        self._write_note()
        try:
            while True:
                before = self.seen["history.jsonl"]
                state = self._follow(self.surely(self._submit))
                if state["state"] == "done":
                    for job in self.old:
                        self.surely(partial(self._delete, job), vanished="gone")
                    return RunFolder.open(self.out)
                idle = 0 if self.seen["history.jsonl"] > before else idle + 1
                over = idle > state.get("tries", idle) or (idle > IDLE and time.monotonic() > until)
                if state["state"] in ("refused", "failed") or over:
                    raise CofactorError(state["text"])
                self._event(f"the job has ended: {state['text']} It is submitted again.")
                if state["state"] == "fewer":
                    self.left |= dict.fromkeys(state["clients"], time.time())
                    if set(state["clients"]) <= set(self.taken):  # came late, and went again
                        self.terms = self.terms.without(self.terms.run, state["clients"])
                    else:
                        self._leave_out(state["clients"])
                elif state["state"] == "unfit":
                    self.unfit |= set(state["clients"])
                    self.terms = self.terms.without(self.terms.run, state["clients"])
                elif late := self.surely(self.late):
                    self.terms, self.taken = self.terms.joined_by(late), late
                self._write_note()
        finally:
            self.close()

    def _write_note(self) -> None:
        """Keep what is needed to go on with the run."""
        note: dict[str, Any] = {"home": str(self.federation.home.resolve()), "terms": self.terms.plain()}
        note |= {"asked": self.asked, "jobs": self.jobs}
        write(self.out / NOTE, lambda file: file.write(as_json(note, indent=1).encode()))

    def late(self) -> list[str]:
        """Return clients that should have been there and are there now: the next job will have them from its start."""
        config = self.terms.config
        missing = [name for name in self.asked if name not in {*self.terms.names, *self.unfit}]
        if not missing or config.privacy is not None or config.secure:  # noise and masks are made for those in a run
            return []
        seen = {info.name: info.last_connect_time for info in self.session.get_connected_client_list()}
        return [name for name in missing if seen.get(name, 0) > self.left.get(name, 0) + RETURN]

    def _leave_out(self, clients: list[str]) -> None:
        """Begin anew without some clients; a private run would release its first rounds twice."""
        if self.terms.config.privacy is not None:
            raise CofactorError(f"{', '.join(clients)}: given up, and a private run cannot begin anew.")
        self.own += lines_of(self.out / EVENTS)
        self.terms = self.terms.without(secrets.token_hex(12), clients)
        self.seen = dict.fromkeys(self.seen, 0)
        for name in ("history.jsonl", "manifest.json"):
            (self.out / name).unlink(missing_ok=True)

    def _follow(self, job: str) -> dict[str, Any]:
        """Watch a job to its end, and bring its files back; a job that vanished with its server is short."""
        self.lost.clear()
        self.quiet.clear()
        while True:
            time.sleep(POLL)
            status = str(self.surely(lambda: self.session.get_job_meta(job).get("status"), vanished="gone"))
            if status == "gone":
                return {"state": "short", "text": "the server has lost the job."}
            if status.startswith("FINISHED"):
                return self._fetch(job, status)
            if not self._look(job) and self.surely(self._born) != self.born:
                return {"state": "short", "text": "the server was started anew without the job."}

    def _born(self) -> Any:
        """Return when the server was started: a job does not outlive it."""
        return self.session.get_system_info().server_info.start_time

    def _look(self, job: str) -> bool:
        """Ask a job how far it is; return whether there is one."""
        from nvflare.fuel.flare_api.api_spec import JobNotRunning

        try:
            asked = {**self.seen, "pause": self._is_back() or bool(self.late())}
            self._progress(self.session.do_app_command(job, "progress", asked))
        except JobNotRunning:
            return False
        except Exception:  # it may not have begun, or have just ended
            return True
        return True

    def _progress(self, found: dict[str, Any]) -> None:
        """Show what is new, and remember who is lost."""
        for name, kind in (("history.jsonl", "history"), (EVENTS, "event")):
            for text in found.get(name, []):
                line = json.loads(text)
                with open(self.out / name, "a", encoding="utf-8") as file:
                    file.write(text + "\n")
                self.seen[name] += 1
                self.tell(kind, line)
                if kind == "event":
                    self._note(line["client"], line["what"])

    def _note(self, client: str, what: str) -> None:
        """Remember who is silent, who was given up for it, and who is back."""
        for found, word in ((self.lost, GIVEN_UP), (self.quiet, SILENT)):
            if word in what:
                found[client] = time.time()
            else:
                found.pop(client, None)

    def _is_back(self) -> bool:
        """Whether a client that was lost in mid-run has connected again: the next job will have it from its start.

        One that is silent in the job and yet connected for a while was started anew, without the job. A private run
        waits until it is given up: its round could not be repeated.
        """
        quiet = {} if self.terms.config.privacy is not None else self.quiet
        if not (self.lost or quiet):
            return False
        found = {info.name: info.last_connect_time for info in self.session.get_connected_client_list()}
        back = [found.get(name, 0) > since + RETURN for name, since in self.lost.items()]
        return any(back) or any(found.get(name, 0) > since + ANEW for name, since in quiet.items())

    def _fetch(self, job: str, status: str) -> dict[str, Any]:
        """Bring the run folder back, and show what came after the last look; without one, the job died in mid-run."""
        with tempfile.TemporaryDirectory() as folder:
            where = Path(self.surely(lambda: self.session.download_job_result(job, folder)))
            found = next(iter(where.rglob("run/outcome.json")), None)
            if found is None:
                ended = status.removeprefix("FINISHED:").lower()
                return {"state": "short", "text": UNSAID.format(ended), **({"tries": IDLE} if ended == DIED else {})}
            outcome = json.loads(found.read_text(encoding="utf-8"))
            self._progress({name: lines_of(found.parent / name)[count:] for name, count in self.seen.items()})
            copy(found.parent, self.out, skip=(found.name,))
            self._merge()
            return outcome

    def _merge(self) -> None:
        """Put what happened to the job among what happened in it, by time."""
        by_time(self.out / EVENTS, dict.fromkeys([*self.own, *lines_of(self.out / EVENTS)]))

    def _delete(self, job: str) -> None:
        """Delete what is stored of a job; one that went with its server has left its terms alone, which FLARE keeps."""
        from nvflare.fuel.flare_api.api_spec import InternalError, JobNotDone

        try:
            self.session.delete_job(job)
        except JobNotDone:
            with suppress(InternalError):  # it is said to run for ever, and cannot be ended
                self.session.abort_job(job)
                raise

    def _submit(self) -> str:
        self.born = self._born()
        names, least = self.terms.names, self.terms.patience.least or len(self.terms.names)
        with tempfile.TemporaryDirectory() as folder:
            app = Path(folder) / "run" / "app" / "config"
            app.mkdir(parents=True)
            meta = {"name": "run", "resource_spec": {}, "min_clients": least, "deploy_map": {"app": ["server", *names]}}
            told = {"terms": self.terms.plain()}
            workflow = {"id": "rounds", "path": kits.CONTROLLER, "args": told}
            server = {"format_version": 2, "workflows": [workflow], "components": []}
            steps = {"tasks": ["none"], "executor": {"path": kits.EXECUTOR, "args": told}}
            client = {"format_version": 2, "executors": [steps], "components": []}
            (app.parent.parent / "meta.json").write_text(json.dumps(meta))
            (app / "config_fed_server.json").write_text(json.dumps(server))
            (app / "config_fed_client.json").write_text(json.dumps(client))
            job = str(self.session.submit_job(str(Path(folder) / "run")))
        self.jobs = [*self.jobs, job]
        self._write_note()
        self._say_who_is_missing()
        return job

    def _say_who_is_missing(self) -> None:
        there = {info.name for info in self.session.get_connected_client_list()}
        if missing := [name for name in self.terms.names if name not in there]:  # the job waits, without a word
            self._event(f"not connected to the server: {', '.join(missing)}; the run waits for clients to join.")

    def surely(self, work: Callable[[], Any], vanished: Any = None) -> Any:
        """Do it with a session that works; a server that is gone may take a while to come back."""
        from nvflare.fuel.flare_api.api_spec import (
            AuthenticationError,
            AuthorizationError,
            InvalidJobDefinition,
            JobNotFound,
        )

        until, said = time.monotonic() + RECONNECT, False
        while True:
            try:
                if self.session is None:
                    self.session = self._connect()
                found = work()
                if said:
                    self._event(BACK)
                return found
            except JobNotFound:
                if said:
                    self._event(BACK)
                if vanished is not None:
                    return vanished
                raise
            except (AuthenticationError, AuthorizationError, InvalidJobDefinition) as error:
                raise CofactorError(f"the server of the federation refuses: {error}.") from error
            except Exception as error:
                self.close()
                if time.monotonic() > until:
                    raise unreachable(self.federation.host, [self.federation.port], error) from error
                if not said:
                    self._event(f"{SERVER}does not answer ({type(error).__name__})")
                    said = True
                time.sleep(POLL)

    def _connect(self) -> Any:
        from nvflare.fuel.flare_api.flare_api import new_secure_session

        logging.getLogger("nvflare").setLevel(logging.CRITICAL)
        with redirect_stdout(io.StringIO()):
            return new_secure_session(kits.LEAD, str((self.federation.home / "lead").resolve()), timeout=10.0)

    def close(self) -> None:
        """Leave the server."""
        session, self.session = self.session, None
        if session is not None:
            with suppress(Exception):
                session.close()

    def _event(self, what: str) -> None:
        """Write down what happens to the job, at once: whoever looks at the page meanwhile should know."""
        line = event("", what)
        self.own.append(json.dumps(line))
        with open(self.out / EVENTS, "a", encoding="utf-8") as file:
            file.write(self.own[-1] + "\n")
        self.tell("event", line)
