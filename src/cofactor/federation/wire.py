"""Frames over the auxiliary messages of a FLARE job: pushed by the server, answered by the client, as plain bytes."""

from __future__ import annotations

import itertools
import queue
import threading
from typing import Any

from nvflare.apis.fl_constant import ReservedKey, ReturnCode
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.apis.signal import Signal

from cofactor.engines.flare_refusals import Short

TOPIC, FRAME = "cofactor", "frame"
LONGEST = 86_400.0


class FlareWire:
    """The wire of a server job: one thread for each frame that is under way."""

    def __init__(self, engine: Any, abort: Any) -> None:
        self.engine, self.abort, self.over = engine, abort, Signal()
        self.tickets = itertools.count(1)
        self.replies: queue.Queue[tuple[int, bytes | None]] = queue.Queue()

    def submit(self, client: str, frame: bytes, timeout: float) -> int:
        """Send a frame to a client's job; return a ticket for its reply."""
        ticket = next(self.tickets)
        threading.Thread(target=self._carry, args=(ticket, client, frame, min(timeout, LONGEST)), daemon=True).start()
        return ticket

    def _carry(self, ticket: int, client: str, frame: bytes, timeout: float) -> None:
        found = None
        try:
            with self.engine.new_context() as context:
                context.put(ReservedKey.RUN_ABORT_SIGNAL, self.over, private=True, sticky=False)
                request = Shareable({FRAME: frame})
                replies = self.engine.send_aux_request([client], TOPIC, request, timeout, context, optional=True)
            reply = (replies or {}).get(client)
            if isinstance(reply, Shareable) and reply.get_return_code(ReturnCode.OK) == ReturnCode.OK:
                found = reply.get(FRAME)
        finally:
            self.replies.put((ticket, found if isinstance(found, bytes) else None))

    def close(self) -> None:
        """Wait for nobody any more: a thread that waits would keep the job's process alive."""
        self.over.trigger(True)

    def wait(self, timeout: float) -> list[tuple[int, bytes | None]]:
        """Return replies that have arrived."""
        if self.abort.triggered:
            raise Short("the job was ended; the run can be resumed.")
        try:
            found = [self.replies.get(timeout=max(timeout, 0.001))]
        except queue.Empty:
            return []
        while not self.replies.empty():
            found.append(self.replies.get())
        return found


def frame_of(request: Any) -> Any:
    """Client: return the frame of a request; anything may be in it."""
    return request.get(FRAME) if isinstance(request, dict) else None


def reply_with(frame: bytes) -> Any:
    """Client: return the reply that carries a frame."""
    reply = make_reply(ReturnCode.OK)
    reply[FRAME] = frame
    return reply
