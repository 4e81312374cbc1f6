"""Reading a log's lines in blocks."""

from __future__ import annotations

import gzip
import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.importing.lines import MAX_LINE_BYTES, Line, LineReader, open_lines
from shared.errors import InvalidInput


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
    if not expected[-1]:
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


@pytest.mark.parametrize("packed", [True, False])
def test_gzip_is_recognised_by_its_first_bytes(tmp_path: Path, packed: bool) -> None:
    """Not by the file's name."""
    file = tmp_path / "log"

    lines, reader = lines_of(file, gzip.compress(b"a\nb\n") if packed else b"a\nb\n")

    assert lines == [Line(1, b"a"), Line(2, b"b")]
    assert reader.position == reader.size == file.stat().st_size
    assert reader.bytes_read == 4


def test_truncated_gzip_is_rejected(tmp_path: Path) -> None:
    """Half a log must not pass for a whole one."""
    with pytest.raises(InvalidInput, match="damaged or truncated"):
        lines_of(tmp_path / "log.gz", gzip.compress(bytes(range(256)) * 100)[:-20])


def test_a_missing_file_is_rejected(tmp_path: Path) -> None:
    """With its name."""
    with pytest.raises(InvalidInput, match="No such file"), open_lines(str(tmp_path / "nothing")):
        pass


def test_a_byte_order_mark_is_not_part_of_the_first_line(tmp_path: Path) -> None:
    """Otherwise the name of the first column would start with it."""
    assert lines_of(tmp_path / "log", b"\xef\xbb\xbfhost\n")[0] == [Line(1, b"host")]
