"""A log of 1.5 million lines through a whole stack: from the start of `baton import` to the last session.

`python -m bench log`. The stack is what `baton up` starts (three consumers, 24 streams, its own Kafka and
ZooKeeper); the log is like a web server's of 1995, tab separated, with the host as key. The import waits
until the group has committed past every closing marker. Beside the wall time, each process's CPU a line says
where it goes: all share the machine's cores.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import resource
import sys
import tempfile
import time
from pathlib import Path

from bench.idle import cpu_s
from bench.report import Row
from cli.stack.local.stack import LocalStack
from cli.stack.options import StackOptions
from tests.servers import free_port_offset

LINES = 1_500_000
VISITORS = 700
"""At a time."""
PER_SESSION = 11
"""On average."""
COLUMNS = "host\tlogname\ttime\tmethod\turl\tresponse\tbytes\treferer\tuseragent"
BEGIN_S = 804_571_200
DEADLINE_S = 300.0
ROUNDS = 5
UNTIL_DELIVERED = "until delivered"


def write_log(path: Path, lines: int = LINES) -> None:
    """Writes the log: the same bytes every time, about 100 a line, 1.4 lines a second."""
    dice = random.Random(12)
    pages = [f"/shuttle/missions/sts-{n}/mission-sts-{n}.html" for n in range(40)]
    pages += [f"/images/launch-{n}.gif" for n in range(200)]
    visitors = [f"dial-{n}.example.net" for n in range(VISITORS)]
    arrived = VISITORS
    with path.open("w", encoding="ascii") as log:
        log.write(f"{COLUMNS}\n")
        for number in range(lines):
            at = int(dice.random() * VISITORS)
            host, page = visitors[at], pages[int(dice.random() * len(pages))]
            size = int(dice.random() * 50_000)
            log.write(f"{host}\t-\t{BEGIN_S + number * 10 // 14}\tGET\t{page}\t200\t{size}\t\t\n")
            if dice.random() * PER_SESSION < 1:
                visitors[at] = f"dial-{arrived}.example.net"
                arrived += 1


async def _import(stack: LocalStack, log: Path, state: Path) -> tuple[float, float]:
    """Wall time and CPU of one `baton import` that waits for all sessions."""
    where = ("--url", stack.producer_url, "--control", stack.control_url)
    fields = ("--format", "tsv", "--key", "host", "--time", "time")
    used_s, began_s = _children_s(), time.monotonic()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "cli.main", "import", str(log), *fields, *where, "--wait", "-o", "json"),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        env=os.environ | {"BATON_STATE": str(state)},
    )
    try:
        async with asyncio.timeout(DEADLINE_S):
            out, _ = await process.communicate()
    except TimeoutError:
        process.kill()
        raise
    wall_s = time.monotonic() - began_s
    summary = json.loads(out)
    assert (summary["accepted"], summary["delivered"]) == (LINES, True), summary
    return wall_s, _children_s() - used_s


def _children_s() -> float:
    """Seconds of CPU of the child processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


async def _round(log: Path, home: Path) -> dict[str, float]:
    """Imports the log into a new stack: seconds until delivered, and each process's CPU in µs a line."""
    options = StackOptions(home=home, port_offset=free_port_offset())
    async with LocalStack(options) as stack:
        names = ("kafka", "producer", "control", *(f"consumer-{n}" for n in stack.consumers))
        pids = {name: pid for name in names if (pid := stack.process(name).pid) is not None}
        before_s = {name: cpu_s(pid) for name, pid in pids.items()}
        wall_s, import_s = await _import(stack, log, home)
        spent_s = {"import": import_s} | {name: cpu_s(pid) - before_s[name] for name, pid in pids.items()}
    spent = {f"CPU of {process}": used / LINES * 1e6 for process, used in spent_s.items()}
    return {UNTIL_DELIVERED: wall_s} | spent


async def measure() -> list[Row]:
    """Wall time of the whole, CPU of each process."""
    with tempfile.TemporaryDirectory(prefix="baton-log-") as folder:
        log = Path(folder) / "visits.tsv"
        write_log(log)
        rounds = [await _round(log, Path(folder) / f"stack-{n}") for n in range(ROUNDS)]
    return [
        Row(
            name=f"a log of {LINES / 1e6:.1f} million lines: {name}",
            unit="s" if name == UNTIL_DELIVERED else "µs a line",
            baton=[found[name] for found in rounds],
            baseline=[],
            target="≤ 30" if name == UNTIL_DELIVERED else "",
        )
        for name in rounds[0]
    ]


def run() -> list[Row]:
    """All figures; starts a stack of its own."""
    return asyncio.run(measure())


if __name__ == "__main__":
    for row in run():
        print(row)
