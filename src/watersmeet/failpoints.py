"""Named places where a test can stop the process dead. Costs one dictionary look-up when unused.

`WATERSMEET_FAILPOINTS="run-half-written=kill@/tmp/once,merge-part=sleep:5"`: at the named place the process
kills itself (`kill`), its executor (`kill-executor`: the JVM above the Python worker) or waits
(`sleep:SECONDS`). `@FILE` makes it happen once over all processes: whoever creates the file does it.
"""

from __future__ import annotations

import os
import signal
import time

_VARIABLE = "WATERSMEET_FAILPOINTS"


def _parse(text: str) -> dict[str, tuple[str, str | None]]:
    points = {}
    for item in filter(None, text.split(",")):
        name, _, action = item.partition("=")
        action, _, once = action.partition("@")
        points[name.strip()] = (action, once or None)
    return points


_POINTS = _parse(os.environ.get(_VARIABLE, ""))

# Places where the caller prepares something (half a file) before the blow: it calls `act` itself.
_PREPARED = frozenset({"run-half-written", "manifest-half-written"})


def reach(name: str) -> bool:
    """Say that execution is at `name`. True where the caller must prepare the scene and then call `act`."""
    if not _POINTS or name not in _POINTS or not _is_due(name):
        return False
    if name in _PREPARED:
        return True
    act(name)
    return False


def act(name: str) -> None:
    action, _ = _POINTS[name]
    if action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif action == "kill-executor":
        _kill_executor()
    elif action.startswith("sleep:"):
        time.sleep(float(action.removeprefix("sleep:")))
    elif action.startswith("raise:"):
        number = int(action.removeprefix("raise:"))
        raise OSError(number, os.strerror(number))


def _is_due(name: str) -> bool:
    once = _POINTS[name][1]
    if once is None:
        return True
    try:
        os.close(os.open(once, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def _kill_executor() -> None:
    """The worker's parent is the Python daemon, and its parent is the JVM of the executor."""
    with open(f"/proc/{os.getppid()}/stat") as stat:
        jvm = int(stat.read().rpartition(")")[2].split()[1])
    os.kill(jvm, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
