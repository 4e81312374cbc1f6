"""A fuzz run: so many seeds, each a request, and what it did to the memory of the process.

Used by `make fuzz` and by the ordinary tests, with fewer seeds.
"""

from __future__ import annotations

import asyncio
import gc
import re
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from tests.fuzz.face import SETTINGS, Face
from tests.fuzz.posts import Post, post_of
from tests.fuzz.verdict import wrong_with

MOST_FAILURES = 5
MIB = 1024 * 1024
WARM_UP = 1_000
"""Seeds before memory is measured: what is kept once (compiled patterns, schemas, bombs) is there then."""
BLOCKS_PER_REQUEST = 0.2
"""A leak of a single object by every fifth request is seen."""
SPARE_BLOCKS = 1_000
MOST_GROWN = 16 * MIB
"""Of resident memory, in which the allocators keep what they may need again: 2 KB for each of 10,000."""
MOST_PEAK = 56 * MIB
"""A request at its limit is 1 MB, in a few copies, decoded once more, and a zstd decoder takes 8 MB for its
window: seed 540516163 brings 40 MiB. A bomb would be 128 MB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Of this process: blocks of Python's own allocator, bytes that are resident, and the most there were."""

    blocks: int
    resident: int
    peak: int


@dataclass(slots=True, kw_only=True)
class Found:
    """What a run found. `before` was measured after the seeds that warm up, `after` at the end."""

    statuses: Counter[str] = field(default_factory=Counter)
    kept: int = 0
    wrong: list[tuple[Post, list[str]]] = field(default_factory=list)
    before: Memory
    after: Memory

    def told(self) -> str:
        """In one line."""
        grown, peak = self.after.resident - self.before.resident, self.after.peak - self.before.resident
        blocks = self.after.blocks - self.before.blocks
        return (
            f"{sum(self.statuses.values()):,} requests, {self.kept:,} fragments kept; "
            f"{', '.join(f'{status} {n:,}' for status, n in sorted(self.statuses.items()))}; memory "
            f"{grown / MIB:+.1f} MiB, {blocks:+,} blocks, peak {peak / MIB:+.1f} MiB"
        )


def faults_of(found: Found) -> list[str]:
    """What is wrong, in words; empty when nothing is."""
    faults = [f"{'; '.join(wrong)}\n{post!r}" for post, wrong in found.wrong]
    before, after, count = found.before, found.after, sum(found.statuses.values())
    if after.blocks - before.blocks > SPARE_BLOCKS + BLOCKS_PER_REQUEST * count:
        faults.append(f"{after.blocks - before.blocks} blocks more after {count} requests")
    if after.resident - before.resident > MOST_GROWN:
        faults.append(f"{(after.resident - before.resident) / MIB:.1f} MiB more after {count} requests")
    if after.peak - before.resident > MOST_PEAK:
        faults.append(f"a peak of {(after.peak - before.resident) / MIB:.1f} MiB above the beginning")
    return faults


async def fuzz(seeds: Iterable[int], warm_up: Iterable[int] = ()) -> Found:
    """Asks with every seed; stops after MOST_FAILURES of them have failed."""
    faces = {name: Face(name) for name in SETTINGS}
    trouble: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: trouble.append(repr(context)))
    for seed in warm_up:
        await _ask(post_of(seed), faces, trouble)
    before = memory(reset_peak=True)
    found = Found(before=before, after=before)
    for seed in seeds:
        post = post_of(seed)
        status, kept, wrong = await _ask(post, faces, trouble)
        found.statuses[status] += 1
        found.kept += kept
        if wrong:
            found.wrong.append((post, wrong))
            if len(found.wrong) == MOST_FAILURES:
                break
    for face in faces.values():
        face.forget()
    found.after = memory()
    return found


async def _ask(post: Post, faces: dict[str, Face], trouble: list[str]) -> tuple[str, int, list[str]]:
    face = faces[post.door]
    try:
        answer = await face.ask(post)
        wrong = wrong_with(post, answer, face) + trouble
    except Exception as error:
        return "raised", 0, [f"raised {error!r}"]
    finally:
        trouble.clear()
    return str(answer.status or "gone"), len(face.sink.kept), wrong


def memory(*, reset_peak: bool = False) -> Memory:
    """As it is now, garbage collected; the peak is counted anew from here where that is asked for (Linux)."""
    gc.collect()
    if reset_peak:
        Path("/proc/self/clear_refs").write_text("5")
    status = Path("/proc/self/status").read_text()

    def of(name: str) -> int:
        found = re.search(rf"{name}:\s+(\d+) kB", status)
        assert found
        return int(found[1]) * 1024

    return Memory(blocks=sys.getallocatedblocks(), resident=of("VmRSS"), peak=of("VmHWM"))
