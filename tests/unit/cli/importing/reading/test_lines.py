"""Reading a log's lines in blocks."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import random
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.importing.reading.lines import MAX_LINE_BYTES, Line, LineReader, open_lines
from shared.errors import InvalidInput

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd


class Dripping(io.BytesIO):
    """Returns at most `step` bytes at once, as a pipe may."""

    def __init__(self, data: bytes, step: int) -> None:
        super().__init__(data)
        self._step = step

    def read1(self, size: int | None = -1, /) -> bytes:
        return super().read1(self._step)


def all_lines(reader: LineReader) -> list[Line]:
    found: list[Line] = []
    while (block := reader.read_block()) is not None:
        found += block
    return found


@given(data=st.binary(max_size=300), step=st.integers(1, 50))
def test_lines_do_not_depend_on_the_blocks(data: bytes, step: int) -> None:
    """However the bytes arrive, the lines are the same; the last one needs no line end."""
    data = data.replace(b"\xef", b"")
    expected = data.split(b"\n")
    if not expected[-1].strip(b"\0"):
        expected.pop()

    lines = all_lines(LineReader(Dripping(data, step), io.BytesIO(), None))

    assert [line.raw for line in lines] == [raw.lstrip(b"\0") for raw in expected]
    assert [line.number for line in lines] == list(range(1, len(expected) + 1))


def test_a_line_that_is_too_long_is_dropped_while_it_is_read() -> None:
    """It keeps its number, and the other lines are read."""
    data = b"a\n" + b"x" * (MAX_LINE_BYTES + 1) + b"\nb"

    lines = all_lines(LineReader(Dripping(data, 100_000), io.BytesIO(), None))

    assert lines == [Line(1, b"a"), Line(2, None), Line(3, b"b")]


def lines_of(file: Path, data: bytes) -> tuple[list[Line], LineReader]:
    """The lines of a file with this content, and its reader."""
    file.write_bytes(data)
    with open_lines(str(file)) as reader:
        return all_lines(reader), reader


@pytest.mark.parametrize("pack", [bytes, gzip.compress, bz2.compress, lzma.compress, zstd.compress])
def test_what_a_log_is_packed_with_is_recognized_by_its_first_bytes(
    tmp_path: Path, pack: Callable[[bytes], bytes]
) -> None:
    """Not by the file's name."""
    file = tmp_path / "log"

    lines, reader = lines_of(file, pack(b"a\nb\n"))

    assert lines == [Line(1, b"a"), Line(2, b"b")]
    assert reader.position == reader.size == file.stat().st_size
    assert reader.bytes_read == 4


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress, zstd.compress])
@pytest.mark.parametrize("damage", [lambda raw: raw[:-20], lambda raw: raw[:7] + b"\xff" * 20 + raw[27:]])
def test_damaged_and_truncated_data_is_rejected(
    tmp_path: Path, pack: Callable[[bytes], bytes], damage: Callable[[bytes], bytes]
) -> None:
    """Half a log must not pass for a whole one."""
    packed = pack(random.Random(0).randbytes(5000))

    with pytest.raises(InvalidInput, match="damaged"):
        lines_of(tmp_path / "log", damage(packed))


@given(data=st.text("aä\n€😀", max_size=50), step=st.integers(1, 9), order=st.sampled_from(["le", "be"]))
def test_utf16_is_recognized_by_its_byte_order_mark(data: str, step: int, order: str) -> None:
    """And is the same log as in UTF-8."""
    raw = f"\ufeff{data}".encode(f"utf-16-{order}")
    wide, plain = (LineReader(Dripping(text, step), io.BytesIO(), None) for text in (raw, data.encode()))

    assert all_lines(wide) == all_lines(plain)
    assert wide.content.content == plain.content.content


def test_a_last_line_without_its_end_waits_in_a_file_that_may_grow(tmp_path: Path) -> None:
    """Not where the log is packed, or said to end here; then it belongs to what was imported."""
    file = tmp_path / "log"

    lines, reader = lines_of(file, b"a\nb")
    packed, _ = lines_of(file, gzip.compress(b"a\nb"))

    assert (lines, reader.is_waiting) == ([Line(1, b"a")], True)
    assert reader.imported.size == 2
    assert packed == [Line(1, b"a"), Line(2, b"b")]
    file.write_bytes(b"a\nb")
    with open_lines(str(file), ends=True) as reader:
        assert all_lines(reader) == packed
        assert reader.imported.size == 3


def test_nuls_before_a_line_are_dropped_and_counted() -> None:
    """A log that was truncated while a server wrote into it begins with a hole, of any size."""
    data = bytes(3 * MAX_LINE_BYTES) + b"a\n\0\0b\0\n" + bytes(5)

    reader = LineReader(Dripping(data, 100_000), io.BytesIO(), None)

    assert all_lines(reader) == [Line(1, b"a"), Line(2, b"b\0")]
    assert reader.nuls == 3 * MAX_LINE_BYTES + 2 + 5


def test_a_log_whose_lines_end_with_cr_alone_does_not_wait(tmp_path: Path) -> None:
    """It is one line, which is refused by its reason."""
    assert lines_of(tmp_path / "log", b"a\rb\r")[0] == [Line(1, b"a\rb\r")]


def test_a_missing_file_is_rejected(tmp_path: Path) -> None:
    """With its name."""
    with pytest.raises(InvalidInput, match="No such file"), open_lines(str(tmp_path / "nothing")):
        pass


def test_a_byte_order_mark_is_not_part_of_the_first_line(tmp_path: Path) -> None:
    """Otherwise the name of the first column would start with it."""
    assert lines_of(tmp_path / "log", b"\xef\xbb\xbfhost\n")[0] == [Line(1, b"host")]
