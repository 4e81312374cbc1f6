"""A driver without Spark that follows the contract of drivers: a program whose argument is the run's folder.

The parameter `item_path` of its request selects its behaviour. It always starts a child in its process group,
which ignores SIGTERM if the driver does, and writes the child's pid to `child`. After a success it waits for
another run, if the request says so.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
MEEK = "import time; time.sleep(600)"


def publish(path: Path, content: object) -> None:
    """Writes the file so that it appears whole."""
    fresh = path.with_name(f".{path.name}")
    fresh.write_text(json.dumps(content))
    fresh.rename(path)


def request_of(run: Path) -> dict[str, object]:
    """What control wants."""
    return dict(json.loads((run / "request.json").read_text()))


def work(run: Path) -> None:
    """Behaves as the request says."""
    request = request_of(run)
    how = dict(request["parameters"])["item_path"]  # type: ignore[call-overload]
    print(f"the stand-in works on {run.name}", flush=True)
    if how == "$.queue":  # for its lock, until the test lets it go on
        while not (run / "lock").exists():
            time.sleep(0.01)
        how = "$.succeed"
    if how == "$.stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    child = subprocess.Popen([sys.executable, "-I", "-S", "-c", STUBBORN if how == "$.stubborn" else MEEK])
    (run / "child").write_text(str(child.pid))
    up = {"pid": os.getpid(), "ui": request["lake"] or None, "application": "app-1", "first_job": 1}
    publish(run / "driver.json", up)
    match how:
        case "$.succeed":
            child.kill()
            child.wait()
            publish(run / "result.json", {"answer": 42})
        case "$.leave_a_child":
            publish(run / "result.json", {"answer": 42})
            sys.exit(0)
        case "$.fail":
            publish(run / "error.json", {"condition": "DIVIDE_BY_ZERO", "message": "Division by zero."})
            sys.exit(1)
        case "$.die":
            print("no memory left", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        case _:
            time.sleep(600)


def main() -> None:
    """One run, and those that control gives it within `idle_s` of the last one."""
    print("a stand-in starts", flush=True)
    run = Path(sys.argv[1])
    request = request_of(run)
    folder = Path(str(request["driver"]))
    (folder / "work").mkdir()
    (folder / "work" / "spilled").write_text("much")
    while True:
        publish(folder / "state.json", {"run": run.name, "has_begun": True})
        work(run)
        publish(folder / "state.json", {"run": run.name, "is_idle": True})
        until_s = time.monotonic() + float(str(request["idle_s"]))
        following = folder / f"after-{run.name}"
        while not following.exists():
            if time.monotonic() > until_s or not folder.exists():
                shutil.rmtree(folder, ignore_errors=True)
                return
            time.sleep(0.01)
        text = following.read_text()
        if not text:
            shutil.rmtree(folder)
            return
        run = Path(text)


main()
