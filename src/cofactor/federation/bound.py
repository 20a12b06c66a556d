"""Run a module for as long as whoever started it lives: ``python -m cofactor.federation.bound MODULE ...``.

``serve`` and ``join`` start a process of FLARE and keep it. If they are killed (by a machine that is out of memory, by
hand), nobody would end that process: a server would hold its port, and a client that is started again would be there
twice, under one certificate, so that the two evict each other for ever. The standard input is a pipe that nobody writes
to; the system closes it when the other end is gone, however it went, and this process ends with it.
"""

from __future__ import annotations

import os
import runpy
import sys
import threading


def _end_with_parent() -> None:
    """Wait for the other end of the pipe to close, and end at once: what must survive that is on the disk."""
    while os.read(sys.stdin.fileno(), 1):
        pass
    os._exit(1)


if __name__ == "__main__":
    threading.Thread(target=_end_with_parent, daemon=True).start()
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
