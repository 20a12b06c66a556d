"""Whoever asks for a run: submit it, follow it, submit it again when it was interrupted, and bring the result back."""

from __future__ import annotations

import json
import secrets
import shutil
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from cofactor.engines.flare_clients import Patience
from cofactor.federation import kits
from cofactor.federation.invite import Federation
from cofactor.federation.start import needs_flare
from cofactor.federation.terms import RunTerms
from cofactor.jobs.config import Config
from cofactor.jobs.folder import RunFolder
from cofactor.types import CofactorError

POLL, RECONNECT = 1.0, 600.0
NOTE = "federation.json"
Tell = Callable[[str, dict[str, Any]], Any]
"""("history" or "event", the line)."""


def fit(federation: Federation, config: Config, patience: Patience, out: Path, tell: Tell) -> RunFolder:
    """Run over the clients of a federation, through every interruption that can be survived."""
    needs_flare()
    if (out / "manifest.json").exists() or (out / NOTE).exists():
        raise CofactorError(f"{out}: already holds a run; choose another --out, or `cofactor resume {out}`.")
    terms = RunTerms(secrets.token_hex(12), config, patience)
    out.mkdir(parents=True, exist_ok=True)
    note = {"home": str(federation.home.resolve()), "terms": terms.plain()}
    (out / NOTE).write_text(json.dumps(note, indent=1))
    return Driver(federation, terms, out, tell).run()


def resume(out: Path, tell: Tell) -> RunFolder:
    """Go on with a run that was interrupted."""
    note = json.loads((out / NOTE).read_text())
    terms = RunTerms.read(note["terms"])
    return Driver(Federation.read(Path(note["home"])), terms, out, tell).run()


class Driver:
    """One run, over as many jobs as it takes."""

    def __init__(self, federation: Federation, terms: RunTerms, out: Path, tell: Tell) -> None:
        self.federation, self.terms, self.out, self.tell = federation, terms, out, tell
        self.session: Any = None
        self.seen = {"history.jsonl": 0, "events.jsonl": 0}

    def run(self) -> RunFolder:
        """Submit jobs until one is done; refusals and errors end it."""
        try:
            while True:
                job = self._surely(self._submit)
                state = self._follow(job)
                if state["state"] == "done":
                    return RunFolder.open(self.out)
                if state["state"] in ("refused", "failed"):
                    raise CofactorError(state["text"])
                self._event(f"job ended ({state['text']}); submitted again")
        finally:
            self._close()

    def _follow(self, job: str) -> dict[str, str]:
        """Watch a job to its end, and bring its files back; a job that vanished with its server is short."""
        lost: set[str] = set()
        while True:
            time.sleep(POLL)
            status = self._surely(lambda: self.session.get_job_meta(job).get("status"), vanished="gone")
            if status == "gone" or str(status).startswith("FINISHED"):
                break
            with suppress(Exception):  # the job may not have begun, or have just ended
                self._progress(self.session.do_app_command(job, "progress", dict(self.seen)), lost)
        if status == "gone":
            return {"state": "short", "text": "the server has lost the job"}
        return self._fetch(job, str(status))

    def _progress(self, found: dict[str, Any], lost: set[str]) -> None:
        for name, kind in (("history.jsonl", "history"), ("events.jsonl", "event")):
            for line in found.get(name, []):
                with open(self.out / name, "a") as file:
                    file.write(line + "\n")
                self.seen[name] += 1
                self.tell(kind, json.loads(line))

    def _fetch(self, job: str, status: str) -> dict[str, str]:
        """Bring the run folder back; without one, the job died in mid-run and is submitted again."""
        with tempfile.TemporaryDirectory() as folder:
            where = Path(self._surely(lambda: self.session.download_job_result(job, folder)))
            found = next(iter(where.rglob("run/outcome.json")), None)
            if found is None:
                return {"state": "short", "text": f"the job ended as {status}"}
            outcome = json.loads(found.read_text())
            for file in found.parent.iterdir():
                if file.name != "outcome.json":
                    shutil.copy(file, self.out / file.name)
            return outcome

    def _submit(self) -> str:
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
            return str(self.session.submit_job(str(Path(folder) / "run")))

    def _surely(self, work: Callable[[], Any], vanished: Any = None) -> Any:
        """Do it with a session that works; a server that is gone may take a while to come back."""
        from nvflare.fuel.flare_api.api_spec import JobNotFound

        until, said = time.monotonic() + RECONNECT, False
        while True:
            try:
                if self.session is None:
                    self.session = self._connect()
                return work()
            except JobNotFound:
                if vanished is not None:
                    return vanished
                raise
            except Exception as error:
                self._close()
                if time.monotonic() > until:
                    where = f"{self.federation.host}, port {self.federation.port}"
                    raise CofactorError(f"{where}: expected the server of the federation ({error}).") from error
                if not said:
                    self._event(f"the server does not answer ({type(error).__name__})")
                    said = True
                time.sleep(POLL)

    def _connect(self) -> Any:
        from nvflare.fuel.flare_api.flare_api import new_secure_session

        return new_secure_session(kits.LEAD, str((self.federation.home / "lead").resolve()), timeout=10.0)

    def _close(self) -> None:
        session, self.session = self.session, None
        if session is not None:
            with suppress(Exception):
                session.close()

    def _event(self, what: str) -> None:
        self.tell("event", {"client": "", "what": what})
