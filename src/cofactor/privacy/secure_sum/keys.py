"""Key files: the long-term keys of clients, exchanged before a run by another way than the server.

Round keys are signed with them, so a client knows that it shares its masks with its peers, and not with whoever carries
the messages. Each client makes ``NAME.key``, which never leaves it and which nobody else may read (0600), and
``NAME.pub``, one line for all others. The format is that of OpenSSH: ``ssh-keygen -lf NAME.pub`` prints the fingerprint
that people compare by telephone. A run needs a folder with the own ``.key`` and the ``.pub`` files of all clients.
"""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from cofactor import files
from cofactor.privacy import owned
from cofactor.privacy.errors import KeyFileError
from cofactor.privacy.owned import OWNER_ONLY
from cofactor.privacy.secure_sum import primitives

PRIVATE, PUBLIC = ".key", ".pub"
TELL_ALL = "make a new key and give the new .pub file to all clients"


class KeyPair(NamedTuple):
    """A client's long-term key (Ed25519): 32 bytes each."""

    private: bytes
    public: bytes


def make(folder: Path | str, name: str) -> Path:
    """Make the keys of a client: ``NAME.key`` (0600) and ``NAME.pub``; keys that are there are never written over.

    Each of them is there as a whole or not at all; where a crash came between them, the public one is made up for.
    """
    path = _private_file(folder, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    public = path.with_suffix(PUBLIC)
    if path.exists() and not public.exists():
        _tell(public, name, read_private(path))
        return path
    pair = KeyPair(*primitives.new_identity())
    try:
        with files.atomic(path, OWNER_ONLY, new=True) as out:
            out.write(primitives.private_text(pair.private))
    except FileExistsError:
        raise KeyFileError(f"{path}: expected no key yet, found one. Keys are never written over.") from None
    _tell(public, name, pair)
    return path


def _tell(path: Path, name: str, pair: KeyPair) -> None:
    """Write the public key, for all others."""
    with files.atomic(path) as out:
        out.write(f"{primitives.public_text(pair.public)} {name}\n".encode())


def fingerprint(public: bytes) -> str:
    """Return what two people compare: ``SHA256:...``, as ``ssh-keygen -l`` prints it."""
    blob = base64.b64decode(primitives.public_text(public).split()[1])
    return "SHA256:" + base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")


def read_private(path: Path | str, advice: str = TELL_ALL) -> KeyPair:
    """Read the private key of a client; one that others may read is refused, with advice if somebody has."""
    file = Path(path)
    text = owned.read(file, "the private key of a client", advice)
    try:
        return KeyPair(*primitives.read_private_text(text))
    except ValueError:
        raise KeyFileError(f"{file}: expected an Ed25519 private key as `cofactor keys make` writes it.") from None


def read_public(path: Path | str) -> dict[str, bytes]:
    """Read the public keys of a file, one on each line: ``ssh-ed25519 AAAA... NAME``."""
    file, found = Path(path), dict[str, bytes]()
    try:
        lines = [line.strip() for line in file.read_text(encoding="utf-8").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise KeyFileError(f"{file}: expected public keys, found: {error}.") from None
    for number, line in enumerate(lines, start=1):
        if not line or line.startswith("#"):
            continue
        words = line.split(None, 2)
        try:
            public = primitives.read_public_text(" ".join(words[:2]))
        except ValueError:
            public = b""
        if not public or len(words) < 3:
            raise KeyFileError(f"{file}, line {number}: expected `ssh-ed25519 AAAA... NAME`, found {line[:40]!r}.")
        if found.setdefault(words[2], public) != public:
            raise KeyFileError(f"{file}, line {number}: expected one key for {words[2]!r}, found two.")
    return found


def read_folder(folder: Path | str) -> dict[str, bytes]:
    """Read all public keys of a folder by name; two different keys of one name are refused."""
    found: dict[str, bytes] = {}
    for file in sorted(Path(folder).glob("*" + PUBLIC)):
        for name, public in read_public(file).items():
            if found.setdefault(name, public) != public:
                raise KeyFileError(f"{file}: expected one key for {name!r}, found another one in {folder} too.")
    return found


class Found(NamedTuple):
    """A client whose key is in a folder; ``private`` says whether the private one is, too."""

    client: str
    fingerprint: str
    private: bool


def inspect(folder: Path | str) -> list[Found]:
    """Return whose keys are in a folder; a private key that is not fit for use is refused."""
    known = read_folder(folder)
    if not known:
        raise KeyFileError(f"{folder}: expected key files (NAME{PUBLIC}), found none.")
    here = {name for name in known if _private_file(folder, name).exists()}
    for name in sorted(here):
        _own(folder, name, known[name])
    return [Found(name, fingerprint(public), name in here) for name, public in sorted(known.items())]


@dataclass(frozen=True)
class Keys:
    """The keys of a run: a folder with the ``.pub`` files of all clients and the ``.key`` files of those that are here.

    ``names`` are the clients in the order of the run. Each place reads its own folder: what a client knows of its peers
    does not come from whoever carries the messages.
    """

    folder: str
    names: tuple[str, ...]

    def registry(self) -> dict[int, bytes]:
        """Return the public keys of all clients by number; refuses one that is missing, doubled or shared by two."""
        home, found = Path(self.folder), read_folder(self.folder)
        missing = [name for name in self.names if name not in found]
        if missing:
            known = ", ".join(sorted(found)) or "none"
            raise KeyFileError(
                f"{home}: expected public keys of all clients, found none of {', '.join(missing)} (found: {known}). "
                "Each client makes its own with `cofactor keys make NAME`, and gives NAME.pub to all others."
            )
        own = [found[name] for name in self.names]
        if len(set(own)) < len(own):
            raise KeyFileError(f"{home}: expected a key of its own for every client, found one key for two of them.")
        return dict(enumerate(own))

    def pair(self, client: int) -> KeyPair:
        """Return the keys of a client that lives here; the private one must belong to the public one."""
        name = self.names[client]
        return _own(self.folder, name, self.registry()[client])


def _own(folder: Path | str, name: str, public: bytes) -> KeyPair:
    """Read the private key that belongs to a public one."""
    path = _private_file(folder, name)
    pair = read_private(path)
    if pair.public != public:
        raise KeyFileError(f"{path}: expected the private part of the public key of {name!r}, found another key.")
    return pair


def _private_file(folder: Path | str, name: str) -> Path:
    return Path(folder) / (_file_name(name) + PRIVATE)


def _file_name(name: str) -> str:
    if not name or name != name.strip() or not name.isprintable():  # blanks at its ends are lost in a .pub file
        raise KeyFileError(f"expected the name of a client, without blanks at its ends, found {name!r}.")
    return quote(name, safe=" ")
