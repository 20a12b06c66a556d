"""Files that are there as a whole or not at all, and that one process at a time holds."""

from __future__ import annotations

import csv
import glob
import io
import json
import os
import shlex
import socket
import time
import tomllib
import uuid
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

from cofactor.types import CofactorError, unknown

WAIT = 10.0
"""So many seconds are waited for what another process holds."""
LOOK = 0.05
UNREADABLE = (
    OSError,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    EOFError,
    RuntimeError,
    zipfile.BadZipFile,
    zlib.error,
)
"""What reading arrays raises on files that hold something else, or only a part."""
HERE = f"{zlib.crc32(socket.gethostname().encode()):08x}"
"""This machine, in the names of files that are being written."""


class HeldError(CofactorError):
    """Another process holds what is asked for; the message says which one."""


def reached(place: str) -> None:
    """Called between any two steps on the way to the disk, so that tests can end a process at each of them."""


def lines_of(path: Path) -> list[str]:
    """Return the lines of a text file of a run, none of one that is not there."""
    try:
        return path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    except UnicodeDecodeError as error:
        raise CofactorError(f"{path}: expected text (UTF-8), found another file, or a damaged one ({error}).") from None


def settled(path: Path) -> Path:
    """Return where a folder that is written to is, or will be, links followed; the folder around it is made."""
    try:
        place = path.resolve()
        place.parent.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise CofactorError(f"{path}: expected a folder to write to, found that a file is in its way.") from None
    except RuntimeError:
        raise CofactorError(f"{path}: expected a folder to write to, found a link that leads to itself.") from None
    return place


def resuming(path: Path) -> str:
    """Return the command that goes on with a run, as a shell takes it.

    >>> resuming(Path("my run"))
    "`cofactor resume 'my run'`"
    """
    return command("resume", path)


def command(verb: str, path: Path | str, more: str = "") -> str:
    """Return a command on a path, as a shell takes it.

    >>> command("ledger new", "my site.jsonl", "--epsilon 4")
    "`cofactor ledger new 'my site.jsonl' --epsilon 4`"
    """
    return f"`{' '.join(filter(None, ['cofactor', verb, shlex.quote(str(path)), more]))}`"


@contextmanager
def undamaged(path: Path, what: str = "a file of arrays as it was written") -> Iterator[None]:
    """Name the file that numpy, zip or zlib cannot read, and what it was expected to hold.

    A file that is not there, or not this user's, is another matter.
    """
    try:
        yield
    except (CofactorError, FileNotFoundError, PermissionError):
        raise
    except MemoryError as error:  # also of a few bytes that say they were that many
        raise CofactorError(f"{path}: expected {what}, found more than memory holds ({error}).") from error
    except UNREADABLE as error:
        raise CofactorError(f"{path}: expected {what}, found another file, or a damaged one ({error}).") from error


def by_time(path: Path, lines: Iterable[str]) -> None:
    """Write lines of JSON in the order of their ``time``."""
    ordered = sorted(lines, key=lambda line: str(json.loads(line)["time"]))
    with atomic(path) as file:
        file.write("".join(f"{line}\n" for line in ordered).encode())


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Say which file could not be written, whatever its name until it is whole; on a full disk nobody else does."""
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise
        raise OSError(error.errno, os.strerror(error.errno), str(path)) from error


@contextmanager
def atomic(path: Path, mode: int = 0o666, *, new: bool = False) -> Iterator[BinaryIO]:
    """Open a file for writing that takes its name only when it is complete and on disk; ``mode`` says whose it is.

    Two may be written at once, and the last one stays. A ``new`` one takes no name that is taken:
    :class:`FileExistsError`. What was begun by a process that has died is removed by the next that writes this file.
    """
    _sweep(path)
    part = path.with_name(f"{path.name}.{HERE}.{os.getpid()}.{uuid.uuid4().hex[:12]}.part")
    try:
        with _named(path), open(part, "wb", opener=lambda name, flags: _opened(name, flags, mode)) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        reached(f"{path.name}: written")
        with _named(path):
            if new:
                os.link(part, path)
                part.unlink()
            else:
                os.replace(part, path)
        reached(f"{path.name}: named")
        _keep_names(path.parent)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def _sweep(path: Path) -> None:
    """Remove what nobody finishes any more: beginnings of this file by processes of this machine that have died."""
    for left in path.parent.glob(f"{glob.escape(path.name)}.{HERE}.*.*.part"):
        if not _lives(left.name.split(".")[-3]):
            left.unlink(missing_ok=True)  # another process may be as quick


def _lives(number: str) -> bool:
    """Whether there is a process of this number; of what is no number nobody knows."""
    try:
        os.kill(int(number), 0)
    except ProcessLookupError:
        return False
    except (OSError, ValueError, OverflowError):
        return True
    return True


def _opened(name: str, flags: int, mode: int) -> int:
    """Open a file that is its owner's from the first byte on, also where one that a crash left is written over."""
    place = os.open(name, flags, mode)
    if not mode & 0o077:
        os.fchmod(place, mode)
    return place


def add(path: Path, text: str, *, sure: bool = False) -> None:
    """Write text at the end of a file; with ``sure`` it is on disk when this returns."""
    with _named(path), open(path, "a", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        if sure:
            os.fsync(file.fileno())


def write_at(path: Path, at: int, data: bytes) -> None:
    """Write the end of a file, from byte ``at`` on; it is on disk when this returns."""
    new = not path.exists()
    with _named(path), open(path, "wb" if new else "r+b") as file:
        file.seek(at)
        half = len(data) // 2
        file.write(data[:half])
        file.flush()
        reached(f"{path.name}: half of it")
        file.write(data[half:])
        file.truncate()
        file.flush()
        os.fsync(file.fileno())
    if new:
        _keep_names(path.parent)
    reached(f"{path.name}: on disk")


def _keep_names(folder: Path) -> None:
    """Bring the names in a folder to disk: a file that nobody finds after a crash was not written."""
    place = os.open(folder, os.O_RDONLY)
    try:
        with _named(folder):
            os.fsync(place)
    finally:
        os.close(place)


@contextmanager
def held(path: Path, what: str, *, wait: float | None = None) -> Iterator[None]:
    """Hold something alone, by a lock at ``path`` that ends with the process; wait for whoever else holds it."""
    place = _lock(path, what, time.monotonic() + (WAIT if wait is None else wait))
    try:
        who = {"pid": os.getpid(), "host": socket.gethostname(), "since": datetime.now(UTC).isoformat(" ", "seconds")}
        os.ftruncate(place, 0)
        os.pwrite(place, json.dumps(who).encode(), 0)
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(place)


def _lock(path: Path, what: str, until: float) -> int:
    try:
        import fcntl
    except ImportError as error:
        raise CofactorError(f"{what}: holding it alone needs the file locks of POSIX, found none here.") from error
    while True:
        with _named(path.parent):
            place = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if path.exists() and os.path.samestat(
                os.stat(path), os.fstat(place)
            ):  # else its holder has just removed it
                return place
        except OSError:
            if time.monotonic() > until:
                holder = _holder(place)
                os.close(place)
                raise HeldError(
                    f"{what}: expected to hold it alone, but {holder} does; wait until that has ended, or end it."
                ) from None
            time.sleep(LOOK)
        except BaseException:
            os.close(place)
            raise
        os.close(place)


def _holder(place: int) -> str:
    """Say who holds a lock."""
    try:
        who = json.loads(os.pread(place, 1000, 0))
        return f"process {who['pid']} on {who['host']} (since {who['since']})"
    except (ValueError, KeyError, TypeError):
        return "another process"


def read_toml(path: Path, known: Sequence[str], what: str = "a configuration") -> dict[str, Any]:
    """Read a TOML file; an unknown key is an error that suggests the nearest known one."""
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise CofactorError(f"{path}: expected {what}, found no such file.") from error
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise CofactorError(f"{path}: expected TOML, found: {error}.") from error
    for key in values:
        if key not in known:
            raise CofactorError(f"{path}: {unknown('key', key, known)}")
    return values


def tsv(rows: Iterable[Iterable[Any]]) -> str:
    """Return rows as text with tabs between cells; a cell with a tab, a quote or a line break in it is quoted.

    >>> tsv([("feature", "score"), ("two\\tparts", 0.5)])
    'feature\\tscore\\n"two\\tparts"\\t0.5\\n'
    """
    text = io.StringIO()
    csv.writer(text, delimiter="\t", lineterminator="\n").writerows(rows)
    return text.getvalue()
