"""Who a client is to ZooKeeper (digest authentication), and for whom it creates znodes (ACLs).

ZooKeeper accepts any name and password: a client proves nothing by them until it meets a znode whose ACL
names the digest of both. While passwords are rotated, a client gives both and creates znodes for both, so
clients that know only one of them can use all znodes. docs/security.md has the steps.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
from dataclasses import dataclass, field

from shared.errors import InvalidInput, ZooKeeperUnavailable
from shared.secret_file import SecretFile

LOCKED = "locked"
OPEN = "open"
FIRST_READ_S = 2.0
READ_S = 0.1
"""How long the file may take before the passwords that are known count; a ping waits no longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """A user with one or two valid passwords; `is_locking` says whether only it may use what it creates."""

    user: str
    passwords: tuple[str, ...] = field(repr=False)
    is_locking: bool = True

    @property
    def proofs(self) -> tuple[str, ...]:
        """What the client sends to the server, once for each password."""
        return tuple(f"{self.user}:{password}" for password in self.passwords)

    @property
    def ids(self) -> tuple[str, ...]:
        """Those who may use the znodes, in ACLs of the scheme `digest`.

        >>> Access(user="super", passwords=("test",)).ids
        ('super:D/InIHSb7yEEbrWz8b9l71RjZJU=',)
        """
        digests = (base64.b64encode(hashlib.sha1(proof.encode()).digest()) for proof in self.proofs)
        return tuple(f"{self.user}:{digest.decode()}" for digest in digests)


class AccessSource:
    """The access of a user whose passwords are in a file."""

    def __init__(self, user: str, file: SecretFile, *, is_locking: bool = True) -> None:
        self.user = user
        self.file = file
        self._is_locking = is_locking
        self._reading: asyncio.Future[tuple[str, ...]] | None = None
        self._passwords: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"<AccessSource of {self.user!r} in {self.file}>"

    async def read(self) -> Access:
        """The access as the file has it now, or had it when it last answered.

        Raises ZooKeeperUnavailable without a usable file.
        """
        # in a thread, and never in a second one: the file may be on a network file system that hangs
        if self._reading is None:
            self._reading = asyncio.ensure_future(asyncio.to_thread(self.file.read))
        done, _ = await asyncio.wait([self._reading], timeout=READ_S if self._passwords else FIRST_READ_S)
        if done:
            reading, self._reading = self._reading, None
            try:
                self._passwords = reading.result()
            except InvalidInput as error:
                raise ZooKeeperUnavailable("no password for ZooKeeper", cause=error.detail) from None
        if not self._passwords:
            raise ZooKeeperUnavailable("no password for ZooKeeper", cause=f"{self.file.path} does not answer")
        return Access(user=self.user, passwords=self._passwords, is_locking=self._is_locking)


def access_source(user: str, password_file: str, acl: str = LOCKED) -> AccessSource | None:
    """The source for these settings; None without a user."""
    if not user:
        return None
    file = SecretFile(password_file, "BATON_ZOOKEEPER_PASSWORD_FILE")
    return AccessSource(user, file, is_locking=acl == LOCKED)
