"""A driver without Spark, which follows the contract of drivers: run as a program with the run's folder.

How it behaves stands in the parameter `item_path` of its request. It always starts a child that lives in
its group and ignores SIGTERM when the driver does, and writes the child's pid to `child`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

FOLDER = Path(sys.argv[1])
REQUEST = json.loads((FOLDER / "request.json").read_text())
HOW = REQUEST["parameters"]["item_path"]
STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
MEEK = "import time; time.sleep(600)"


def publish(name: str, content: object) -> None:
    """Writes the file whole, by a rename."""
    (FOLDER / f".{name}").write_text(json.dumps(content))
    (FOLDER / f".{name}").rename(FOLDER / name)


def main() -> None:
    """Behaves as asked."""
    print("the stand-in starts", flush=True)
    if HOW == "$.stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    child = subprocess.Popen([sys.executable, "-I", "-S", "-c", STUBBORN if HOW == "$.stubborn" else MEEK])
    (FOLDER / "child").write_text(str(child.pid))
    publish("driver.json", {"pid": os.getpid(), "ui": REQUEST["lake"] or None, "application": "app-1"})
    match HOW:
        case "$.succeed":
            child.kill()
            child.wait()
            publish("result.json", {"answer": 42})
        case "$.leave_a_child":
            publish("result.json", {"answer": 42})
        case "$.linger":
            publish("result.json", {"answer": 42})
            time.sleep(600)
        case "$.fail":
            publish("error.json", {"condition": "DIVIDE_BY_ZERO", "message": "Division by zero."})
            sys.exit(1)
        case "$.die":
            print("no memory left", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        case _:
            time.sleep(600)


main()
