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


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessSource:
    """The access of a user whose passwords are in a file."""

    user: str
    file: SecretFile
    is_locking: bool = True

    async def read(self) -> Access:
        """The access as the file has it now. Raises ZooKeeperUnavailable without a usable file."""
        try:
            # in a thread: the file may be on a network file system that hangs
            passwords = await asyncio.to_thread(self.file.read)
        except InvalidInput as error:
            raise ZooKeeperUnavailable("no password for ZooKeeper", cause=error.detail) from None
        return Access(user=self.user, passwords=passwords, is_locking=self.is_locking)


def access_source(user: str, password_file: str, acl: str = LOCKED) -> AccessSource | None:
    """The source for these settings; None without a user."""
    if not user:
        return None
    file = SecretFile(password_file, "BATON_ZOOKEEPER_PASSWORD_FILE")
    return AccessSource(user=user, file=file, is_locking=acl == LOCKED)
