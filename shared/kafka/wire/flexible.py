"""Messages of Kafka's flexible versions (KIP-482), for the requests that aiokafka does not have in them.

A `Cursor` reads a response; `FlexibleRequest` is what a connection of aiokafka sends. Rare messages are
declared with aiokafka's schema types; only the fetch, which is hot, is written by hand. Source: the message
formats in Kafka's `clients/src/main/resources/common/message`.
"""

from __future__ import annotations

import struct
from io import BytesIO
from typing import Any, ClassVar, TypeVar

from aiokafka.errors import IncompatibleBrokerVersion
from aiokafka.protocol.abstract import AbstractType
from aiokafka.protocol.api import RequestHeader_v2, ResponseHeader_v1
from aiokafka.protocol.struct import Struct

NO_TAGS = b"\x00"
_INT16, _INT32, _INT64 = (struct.Struct(f">{code}") for code in "hiq")


class Cursor:
    """Reads one value after the other from the bytes of a response. Raises ValueError at a premature end."""

    __slots__ = ("_at", "_data")

    def __init__(self, data: memoryview, at: int = 0) -> None:
        self._data = data
        self._at = at

    def __repr__(self) -> str:
        return f"<Cursor at {self._at} of {len(self._data)}>"

    def int16(self) -> int:
        """A signed integer of 2 bytes."""
        return self._fixed(_INT16)

    def int32(self) -> int:
        """A signed integer of 4 bytes."""
        return self._fixed(_INT32)

    def int64(self) -> int:
        """A signed integer of 8 bytes."""
        return self._fixed(_INT64)

    def varint(self) -> int:
        """An unsigned integer of at most 5 bytes, 7 bits in each."""
        value = shift = 0
        while shift < 35:
            byte = self._data[self._skip(1)]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
        raise ValueError("a varint of more than 5 bytes")

    def raw(self, size: int) -> bytes:
        """The next `size` bytes, copied."""
        start = self._skip(size)
        return bytes(self._data[start : self._at])

    def compact_bytes(self) -> bytes:
        """Bytes after their length; b"" for null."""
        size = self.varint() - 1
        return self.raw(size) if size > 0 else b""

    def compact_count(self) -> int:
        """How many elements the array has that begins here; 0 for null."""
        return max(0, self.varint() - 1)

    def tags(self) -> dict[int, memoryview]:
        """The tagged fields: number → bytes. Most often there are none."""
        found = {}
        for _ in range(self.varint()):
            tag, size = self.varint(), self.varint()
            start = self._skip(size)
            found[tag] = self._data[start : self._at]
        return found

    def _fixed(self, form: struct.Struct) -> int:
        value: int = form.unpack_from(self._data, self._skip(form.size))[0]
        return value

    def _skip(self, size: int) -> int:
        start, self._at = self._at, self._at + size
        if self._at > len(self._data):
            raise ValueError("the response ends too early")
        return start


def compact_size(size: int) -> bytes:
    """How a flexible message writes the number of elements, or bytes, of what follows."""
    value, written = size + 1, bytearray()
    while value > 0x7F:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    written.append(value)
    return bytes(written)


class Uuid(AbstractType):  # type: ignore[misc]
    """A topic's id, as 16 bytes."""

    @classmethod
    def encode(cls, value: bytes) -> bytes:
        return value

    @classmethod
    def decode(cls, data: BytesIO) -> bytes:
        return data.read(16)


Request = TypeVar("Request", bound="FlexibleRequest")


class FlexibleRequest:
    """What aiokafka's connection needs of a request. Subclasses add `encode` and the response's `decode`."""

    API_KEY: ClassVar[int]
    API_VERSION: ClassVar[int]
    RESPONSE_TYPE: ClassVar[Any]

    def prepare(self: Request, versions: dict[int, tuple[int, int]]) -> Request:
        """Itself. Raises IncompatibleBrokerVersion if the broker does not know this version."""
        least, most = versions.get(self.API_KEY, (0, -1))
        if not least <= self.API_VERSION <= most:
            raise IncompatibleBrokerVersion(
                f"{type(self).__name__} needs version {self.API_VERSION}; the broker has {least} to {most}"
            )
        return self

    def build_request_header(self, correlation_id: int, client_id: str) -> RequestHeader_v2:
        """The header before it."""
        return RequestHeader_v2(self, correlation_id=correlation_id, client_id=client_id)

    def parse_response_header(self, buffer: BytesIO) -> ResponseHeader_v1:
        """The header of the response."""
        return ResponseHeader_v1.decode(buffer)


class FlexibleStruct(FlexibleRequest, Struct):  # type: ignore[misc]
    """A request that is declared by a schema."""
