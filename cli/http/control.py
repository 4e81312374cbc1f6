"""Connects to control, with the token that it may demand. Used by every command that asks control."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

from cli.http.client import FIRST_CONTACT_S, BatonClient, connect
from cli.terminal.local_stack import token_for


def connect_to_control(
    url: str, *, patience_s: float = 2.0, connect_patience_s: float = FIRST_CONTACT_S
) -> AbstractAsyncContextManager[BatonClient]:
    """A client of control, with the token of the environment or of the local stack. Raises InvalidInput."""
    return connect(url, patience_s=patience_s, connect_patience_s=connect_patience_s, bearer=token_for(url))
