"""What FLARE starts in the server's process for a job: it carries the run and leaves the result to be fetched."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from nvflare.apis.fl_context import FLContext
from nvflare.apis.impl.controller import Controller
from nvflare.apis.signal import Signal

from cofactor.engines.history import EVENTS
from cofactor.federation import going_on
from cofactor.federation.server_job import outcome, serve
from cofactor.federation.terms import RunTerms
from cofactor.federation.wire import FlareWire
from cofactor.files import lines_of
from cofactor.jobs import uploads

PROGRESS, OUTCOME, RESULT = "progress", "outcome.json", "run"


class Rounds(Controller):
    """The server of one run."""

    def __init__(self, terms: dict[str, Any]) -> None:
        super().__init__()
        self.terms = RunTerms.read(terms)
        self.pause, self.started = False, time.time()
        self.out = Path()

    def start_controller(self, fl_ctx: FLContext) -> None:
        """Find the folder of the run, and answer whoever asks how it goes."""
        engine = fl_ctx.get_engine()
        self.out = Path(engine.get_workspace().get_root_dir()) / "runs" / self.terms.run
        engine.register_app_command(PROGRESS, self.progress)

    def progress(self, topic: str, data: Any, fl_ctx: FLContext) -> dict[str, Any]:
        """Say how far the run is: lines of its history and events from where the asker left off."""
        asked = data if isinstance(data, dict) else {}
        self.pause = self.pause or asked.get("pause") is True
        found = {}
        for name in ("history.jsonl", EVENTS):
            found[name] = lines_of(self.out / name)[int(asked.get(name, 0)) :]
        return found

    def control_flow(self, abort_signal: Signal, fl_ctx: FLContext) -> None:
        """Carry the run; how it ended is written next to the result, whatever happens."""
        engine, error = fl_ctx.get_engine(), None
        wire = FlareWire(engine, abort_signal)
        try:
            serve(self.terms, wire, self.out, stop=lambda: self.pause, started=self.started)
        except Exception as found:
            self.logger.exception("the run ended")
            error = found
        wire.close()
        folder = Path(engine.get_workspace().get_run_dir(fl_ctx.get_job_id())) / RESULT
        # keys that sign what was received stay at the server, as its states do
        going_on.copy(self.out, folder, skip=("checkpoint", uploads.FILE, going_on.SETTLED, "clients"))
        (folder / OUTCOME).write_text(json.dumps(outcome(error)))

    def stop_controller(self, fl_ctx: FLContext) -> None:
        """Nothing is left to be done."""
