"""Python reads this at its start where this folder is in PYTHONPATH: for tests of what really crosses the network.

With ``COFACTOR_TEST_RECORD`` every frame that arrives at this process, after TLS, is added to a file of that name. With
``COFACTOR_TEST_HOSTILE`` hostile frames go over the same connection: a server sends five before each early order,
and writes down the replies, a client answers no step but with one. With ``COFACTOR_TEST_CONTROL`` a client's steps take
50 ms at least, so that a run lasts as long on a fast machine, and files say what happens to it: see :func:`controlled`.
"""

import errno
import os
import random
import sys
import threading
import time

LOCK, DRAW = threading.Lock(), random.Random(5)


def record(path):
    from nvflare.fuel.f3.sfm.conn_manager import ConnManager

    plain = ConnManager.process_frame_task

    def process_frame_task(self, connection, frame):
        with LOCK, open(f"{path}.{os.getpid()}", "ab") as file:
            file.write(bytes(frame) + b"\n")
        return plain(self, connection, frame)

    ConnManager.process_frame_task = process_frame_task


def hostile_server(path):
    from nvflare.apis.shareable import Shareable
    from tests.helpers.hostile import damaged

    from cofactor.federation.wire import FRAME, TOPIC, FlareWire

    plain = FlareWire._carry

    def _carry(self, ticket, client, frame, timeout):
        for _ in range(5 if ticket <= 70 else 0):
            with LOCK:
                bad = damaged(frame, DRAW)
            with self.engine.new_context() as context:
                asked = Shareable({FRAME: bad})
                replies = self.engine.send_aux_request([client], TOPIC, asked, 20.0, context, optional=True)
            found = (replies or {}).get(client)
            with LOCK, open(path, "ab") as file:
                file.write((found.get(FRAME) or b"none" if found else b"none") + b"\n--\n")
        plain(self, ticket, client, frame, timeout)

    FlareWire._carry = _carry


def hostile_client():
    from tests.helpers.hostile import damaged

    from cofactor.federation import executor

    plain = executor.reply_with
    executor.reply_with = lambda frame: plain(damaged(frame, DRAW) if b'"answer"' in frame else frame)


def controlled(path):
    """``PATH.sleep`` holds the seconds of the next step, and is then ``PATH.asleep``; ``PATH.full`` fills the disk."""
    from cofactor.engines.flare_member import Member

    plain, sync = Member.step, os.fsync

    def step(self, value):
        time.sleep(0.05)
        if os.path.exists(f"{path}.sleep"):
            os.replace(f"{path}.sleep", f"{path}.asleep")
            with open(f"{path}.asleep") as file:
                time.sleep(float(file.read()))
        return plain(self, value)

    def fsync(number):
        if os.path.exists(f"{path}.full") and "/runs/" in os.readlink(f"/proc/self/fd/{number}"):
            raise OSError(errno.ENOSPC, "No space left on device")
        sync(number)

    Member.step, os.fsync = step, fsync


def another_version():
    import cofactor

    cofactor.__version__ = "0.0.1"


if os.environ.get("COFACTOR_TEST_RECORD"):
    record(os.environ["COFACTOR_TEST_RECORD"])
match os.environ.get("COFACTOR_TEST_HOSTILE", "").partition(":"):
    case ("server", _, where):
        hostile_server(where)
    case ("client", _, _):
        hostile_client()
if os.environ.get("COFACTOR_TEST_CONTROL") and "cofactor.federation.workers" in sys.orig_argv:
    controlled(os.environ["COFACTOR_TEST_CONTROL"])
if os.environ.get("COFACTOR_TEST_VERSION"):
    another_version()
