"""Offsets as CSV, as `kafka-consumer-groups` writes them (`--export`) and reads them (`--from-file`).

A line is `topic,partition,offset`, without a header; in a file of several groups the group comes first. Pure.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping

from shared.errors import InvalidInput
from shared.kafka.record import Partition

Offsets = Mapping[str, Mapping[Partition, int]]
"""By Kafka group, the offset of each partition."""


def format_offsets(offsets: Offsets) -> str:
    """The lines, in order; with the group if there are several.

    >>> format_offsets({"a": {("t", 1): 7, ("t", 0): 5}})
    't,0,5\\nt,1,7\\n'
    >>> format_offsets({"b": {("t", 0): 5}, "a": {}})
    'b,t,0,5\\n'
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for group, of_group in sorted(offsets.items()):
        named = [group] if len(offsets) > 1 else []
        writer.writerows([*named, *place, offset] for place, offset in sorted(of_group.items()))
    return text.getvalue()


def parse_offsets(lines: Iterable[str], group: str = "") -> Offsets:
    """The offsets of the lines; `group`: that of lines without one.

    Raises InvalidInput: for a line that is none, for a second one of a partition, for one without a group.

    >>> parse_offsets(['"t",0,5\\n', "b,t,0,6\\n"], "a")
    {'a': {('t', 0): 5}, 'b': {('t', 0): 6}}
    """
    found: dict[str, dict[Partition, int]] = {}
    for number, fields in enumerate(csv.reader(lines), 1):
        if not fields:
            continue
        name, topic, partition, offset = [group, *fields] if len(fields) == 3 else _four(fields, number)
        if not name:
            raise InvalidInput(f"line {number} names no group: `--group` says whose the offsets are")
        if not (partition.isdecimal() and offset.isdecimal()):
            raise InvalidInput(f"line {number}: partition and offset are whole numbers, at least 0")
        place = topic, int(partition)
        of_group = found.setdefault(name, {})
        if place in of_group:
            raise InvalidInput(f"line {number} names partition {place[1]} of {topic} again")
        of_group[place] = int(offset)
    return found


def _four(fields: list[str], number: int) -> list[str]:
    if len(fields) != 4:
        raise InvalidInput(f"line {number} is not `topic,partition,offset`, perhaps with the group before")
    return fields
