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


def end_with(pipe: int) -> None:
    """End this process as soon as nobody holds the other end of a pipe: what must survive that is on the disk."""

    def wait() -> None:
        while os.read(pipe, 1):
            pass
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


if __name__ == "__main__":
    end_with(sys.stdin.fileno())
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
