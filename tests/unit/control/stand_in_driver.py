"""A driver without Spark that follows the contract of drivers: a program whose argument is the run's folder.

The parameter `item_path` of its request selects its behaviour. It always starts a child in its process group,
which ignores SIGTERM if the driver does, and writes the child's pid to `child`.
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
    """Writes the file so that it appears whole."""
    (FOLDER / f".{name}").write_text(json.dumps(content))
    (FOLDER / f".{name}").rename(FOLDER / name)


def main() -> None:
    """Behaves as the request says."""
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
        case "$.fail":
            publish("error.json", {"condition": "DIVIDE_BY_ZERO", "message": "Division by zero."})
            sys.exit(1)
        case "$.die":
            print("no memory left", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        case _:
            time.sleep(600)


main()
