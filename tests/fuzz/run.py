"""A fuzz run: asks with many seeds, each a request, and measures its CPU time and the process's memory.

Used by `make fuzz`, and with fewer seeds by the ordinary tests.
"""

from __future__ import annotations

import asyncio
import gc
import re
import sys
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tests.fuzz.effort import confirmed_s, measure_allowance
from tests.fuzz.face import SETTINGS, Face
from tests.fuzz.posts import Post, post_of
from tests.fuzz.verdict import wrong_with

MAX_FAILURES = 5
MIB = 1024 * 1024
WARM_UP = 1_000
"""Seeds before memory is measured, so that caches (compiled patterns, schemas, bombs) are already filled."""
BLOCKS_PER_REQUEST = 0.2
"""Detects a leak of a single object in every fifth request."""
SPARE_BLOCKS = 1_000
MAX_GROWTH = 16 * MIB
"""Of resident memory, where allocators keep memory for reuse: 2 KB for each of 10,000 requests."""
MAX_PEAK = 32 * MIB
"""A request at its limit has 1 MB, in a few copies and decoded once more, and a zstd decoder has a window of
8 MB: in eight runs of 10,000 requests the peak was 12 MiB at most. A bomb would take 128 MB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Of this process: blocks of Python's allocator, resident bytes, and their peak."""

    blocks: int
    resident: int
    peak: int


@dataclass(slots=True, kw_only=True)
class Found:
    """The results of a run. `before` was measured after the warm-up, `after` at the end.

    `slowest` is the highest share of its allowance of CPU time that a request took (effort.py), and its seed.
    """

    slowest: tuple[float, int] = (0.0, -1)
    statuses: Counter[str] = field(default_factory=Counter)
    kept: int = 0
    wrong: list[tuple[Post, list[str]]] = field(default_factory=list)
    before: Memory
    after: Memory

    def summary(self) -> str:
        """All results in one line."""
        grown, peak = self.after.resident - self.before.resident, self.after.peak - self.before.resident
        blocks = self.after.blocks - self.before.blocks
        return (
            f"{sum(self.statuses.values()):,} requests, {self.kept:,} fragments kept; "
            f"{', '.join(f'{status} {n:,}' for status, n in sorted(self.statuses.items()))}; memory "
            f"{grown / MIB:+.1f} MiB, {blocks:+,} blocks, peak {peak / MIB:+.1f} MiB; at most "
            f"{self.slowest[0]:.0%} of the allowed CPU time (seed {self.slowest[1]})"
        )


def faults_of(found: Found) -> list[str]:
    """One text for each fault; empty if there are none."""
    faults = [f"{'; '.join(wrong)}\n{post!r}" for post, wrong in found.wrong]
    before, after, count = found.before, found.after, sum(found.statuses.values())
    if after.blocks - before.blocks > SPARE_BLOCKS + BLOCKS_PER_REQUEST * count:
        faults.append(f"{after.blocks - before.blocks} blocks more after {count} requests")
    if after.resident - before.resident > MAX_GROWTH:
        faults.append(f"{(after.resident - before.resident) / MIB:.1f} MiB more after {count} requests")
    if after.peak - before.resident > MAX_PEAK:
        faults.append(f"a peak of {(after.peak - before.resident) / MIB:.1f} MiB above the beginning")
    return faults


async def fuzz(seeds: Iterable[int], warm_up: Iterable[int] = ()) -> Found:
    """Asks with every seed; stops after MAX_FAILURES failures."""
    faces = {name: Face(name) for name in SETTINGS}
    trouble: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: trouble.append(repr(context)))
    for seed in warm_up:
        await _ask(post_of(seed), faces, trouble)
    allowance = await measure_allowance(faces["usual"])
    faces["usual"].forget()  # the measure's fragments, whose release would hide a leak as large
    before = memory(reset_peak=True)
    found = Found(before=before, after=before)
    for seed in seeds:
        post = post_of(seed)
        asked = await _ask(post, faces, trouble)
        found.statuses[asked.status] += 1
        found.kept += asked.kept
        wrong = asked.wrong
        allowed_s = allowance.for_size(post.size)
        share = await confirmed_s(faces[post.door], post, asked.cpu_s, allowed_s) / allowed_s
        found.slowest = max(found.slowest, (share, post.seed))
        if share > 1:
            wrong.append(f"took {share:.0%} of the allowed {allowed_s * 1e3:.1f} ms")
        if wrong:
            found.wrong.append((post, wrong))
            if len(found.wrong) == MAX_FAILURES:
                break
    for face in faces.values():
        face.forget()
    found.after = memory()
    return found


class _Asked(NamedTuple):
    """The result of one request; `cpu_s` is what the door spent on it."""

    status: str
    kept: int
    wrong: list[str]
    cpu_s: float


async def _ask(post: Post, faces: dict[str, Face], trouble: list[str]) -> _Asked:
    face = faces[post.door]
    began_s = time.process_time()
    try:
        answer = await face.ask(post)
        cpu_s = time.process_time() - began_s
        wrong = wrong_with(post, answer, face) + trouble
    except Exception as error:
        return _Asked("raised", 0, [f"raised {error!r}"], 0.0)
    finally:
        trouble.clear()
    return _Asked(str(answer.status or "gone"), len(face.sink.kept), wrong, cpu_s)


def memory(*, reset_peak: bool = False) -> Memory:
    """The memory after a garbage collection; optionally resets the peak (Linux only)."""
    gc.collect()
    if reset_peak:
        Path("/proc/self/clear_refs").write_text("5")
    status = Path("/proc/self/status").read_text()

    def of(name: str) -> int:
        found = re.search(rf"{name}:\s+(\d+) kB", status)
        assert found
        return int(found[1]) * 1024

    return Memory(blocks=sys.getallocatedblocks(), resident=of("VmRSS"), peak=of("VmHWM"))
