"""What FLARE starts in a client's process for a job: a desk at which the orders of the run arrive."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from nvflare.apis.event_type import EventType
from nvflare.apis.executor import Executor
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.apis.signal import Signal

from cofactor.engines.flare_format import refusal
from cofactor.federation.client_job import ClientJob
from cofactor.federation.own_run import Own
from cofactor.federation.wire import TOPIC, frame_of, reply_with

LOG = logging.getLogger("cofactor.client")


class Steps(Executor):
    """The client of one run. Nothing that is raised here reaches the server: it hears fixed texts only."""

    def __init__(self, terms: dict[str, Any]) -> None:
        super().__init__()
        self.terms = terms
        self.job: ClientJob | None = None

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Open the desk when the job starts."""
        if event_type == EventType.START_RUN:
            engine = fl_ctx.get_engine()
            try:
                self.job = ClientJob(self.terms, Own.read(Path(engine.get_workspace().get_root_dir())))
            except Exception:
                LOG.exception("the run could not be begun")
            engine.register_aux_message_handler(TOPIC, self.answer)

    def answer(self, topic: str, request: Any, fl_ctx: FLContext) -> Any:
        """Answer one order."""
        if self.job is None:
            return reply_with(refusal("none", 0, "failed"))
        return reply_with(self.job.desk.handle(frame_of(request)))

    def execute(self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal) -> Shareable:
        """There are no tasks."""
        return make_reply(ReturnCode.TASK_UNKNOWN)
