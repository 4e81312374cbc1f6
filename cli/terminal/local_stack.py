"""Finds the local stack that a command means: the one of the current folder or of the nearest above it.

So does git with its repository. `baton up` and `baton down` use the home itself; client commands read what
`baton up` has written there (`cli/stack/processes/state.py`), unless they are given an address.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import msgspec

from shared.errors import InvalidInput, SettingsInvalid
from shared.secret_file import parse_secrets
from shared.service.key_file import check_key
from shared.service.tls import TlsFiles

STATE_FILE = "stack.json"
LOCK_FILE = "lock"


class Addresses(msgspec.Struct, frozen=True, kw_only=True):
    """Where the services of a stack are; the part of its state that clients need.

    `kafka_locks`: the variables `BATON_KAFKA_…` with which clients of its Kafka are let in; `tls`: those with
    which clients of its services are; `token_file`: that of a token for its control.
    """

    control: str = ""
    producer: str = ""
    queue: str = ""
    kafka: str = ""
    kafka_locks: dict[str, str] = {}
    tls: dict[str, str] = {}
    token_file: str = ""
    namespace: str = ""

    @property
    def is_trusted(self) -> bool:
        """Whether everything is on this machine: a folder of another user must not redirect a write key."""
        # a stack of an earlier version has no queues
        urls = (self.control, self.producer, *filter(None, [self.queue]))
        here = ("http://127.0.0.1:", "https://127.0.0.1:")
        return all(url.startswith(here) for url in urls) and self.kafka.startswith("127.0.0.1:")


class _Supervisor(msgspec.Struct):
    pid: int


class _Running(Addresses, frozen=True, kw_only=True):
    supervisor: _Supervisor


def find_home(environment: Mapping[str, str] = os.environ, folder: Path | None = None) -> Path:
    """The home of the stack that a command in this folder means, whether or not it exists.

    It is `BATON_HOME`, or the nearest `.baton` in the folder or above in which this user ran a stack, or else
    `.baton` in the folder.
    """
    if given := environment.get("BATON_HOME"):
        return Path(given)
    folder = folder or Path.cwd()
    return next(
        (home for above in (folder, *folder.parents) if _is_home(home := above / ".baton")), folder / ".baton"
    )


def find_stack(environment: Mapping[str, str] = os.environ, folder: Path | None = None) -> Addresses | None:
    """The running stack of this folder, or None."""
    # the nearest home decides, even when its stack does not run
    return _read(find_home(environment, folder) / STATE_FILE)


def tls_for(url: str, environment: Mapping[str, str] = os.environ) -> TlsFiles:
    """What to show and to trust at this URL: what the environment says, or else the local stack there."""
    own = TlsFiles.from_environment(environment)
    stack = find_stack(environment)
    if (
        own == TlsFiles()
        and stack is not None
        and url.rstrip("/")
        in (
            stack.control,
            stack.producer,
            stack.queue,
        )
    ):
        own = TlsFiles.from_environment(stack.tls)
    # a service's setting, which its shell may share with us
    return replace(own, client_ca="")


def token_for(url: str, environment: Mapping[str, str] = os.environ) -> str:
    """The token to show to control at this URL: what the environment says, or else the local stack's; or "".

    Raises InvalidInput if it is in a file that cannot be read, or cannot be a token.
    """
    if token := environment.get("BATON_TOKEN", "").strip():
        check_key(token, "BATON_TOKEN")
        return token
    variable, file = "BATON_TOKEN_FILE", environment.get("BATON_TOKEN_FILE", "")
    stack = find_stack(environment)
    if not file and stack is not None and url.rstrip("/") == stack.control:
        variable, file = "the local stack's token", stack.token_file
    if not file:
        return ""
    try:
        token, *_ = parse_secrets(Path(file).read_bytes())
        check_key(token, "the token")
        return token
    except OSError as error:
        raise SettingsInvalid([f"{variable}={file}: {error.strerror}"]) from None
    except InvalidInput as error:
        raise SettingsInvalid([f"{variable}={file}: {error.detail}"]) from None


def _is_home(folder: Path) -> bool:
    with contextlib.suppress(OSError):
        # by the lock, which stays when a stack has stopped; a folder of jobs' results alone is not a home.
        # In a folder like /tmp anybody can make one, whose files may be links to somewhere else
        return (folder / LOCK_FILE).exists() and folder.stat().st_uid == os.getuid()
    return False


def _read(state: Path) -> Addresses | None:
    with contextlib.suppress(OSError, msgspec.DecodeError):
        found = msgspec.json.decode(state.read_bytes(), type=_Running)
        # signal 0 only asks: a stack that was killed leaves its file behind
        os.kill(found.supervisor.pid, 0)
        return found if found.is_trusted else None
    return None
