"""Compiling that takes long is said, once; what is short, or found on disk, is not."""

import time

from cofactor.local.kernels import waiting
from cofactor.local.kernels.waiting import TEXT, Waiting


def work(listener: Waiting, seconds: float) -> None:
    """Compile for so long, one kernel inside another."""
    listener.on_start(None)
    listener.on_start(None)
    time.sleep(seconds)
    listener.on_end(None)
    listener.on_end(None)


def test_only_what_takes_long_in_all_is_said_and_only_once(monkeypatch, caplog) -> None:
    monkeypatch.setattr(waiting, "AFTER", 0.2)
    listener = Waiting()
    work(listener, 0.05)
    time.sleep(0.25)  # nothing is compiled now
    assert not caplog.records
    for _ in range(10):
        work(listener, 0.1)
    assert [record.getMessage() for record in caplog.records] == [TEXT]
