"""Processes that the fault tests start, watch and end: drivers in a session of their own, a standalone cluster.

Every process is ended by its id, and only if it was started here.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import pyspark

from tests.faults.harness import REPOSITORY, python_path
from tests.waiting import wait_until

SPARK_HOME = Path(pyspark.__file__).parent


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": python_path(), "SPARK_LOCAL_IP": "127.0.0.1", **more}


# --- drivers --------------------------------------------------------------------------------------------


@dataclass
class Driver:
    """A driver script in a Unix session of its own, so that all that it starts can be found."""

    process: subprocess.Popen[bytes]
    log: Path

    def members(self) -> list[psutil.Process]:
        return [process for process in psutil.process_iter() if _session(process.pid) == self.process.pid]

    def wait(self, timeout_s: float = 200) -> int:
        """Its exit status, once it and everything that it started are gone."""
        status = self.process.wait(timeout_s)
        wait_until(lambda: not self.members(), "processes of the driver still run", 60)
        return status

    def kill(self) -> None:
        """kill -9, for the driver, its JVM and its Python workers alike."""
        for process in self.members():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self.process.wait(30)

    def workers(self) -> list[psutil.Process]:
        """The Python workers: forks of Spark's Python daemon, which is a child of the JVM."""
        return [process for process in self.members() if _is_worker(process)]

    def kill_all_but_workers(self) -> None:
        """The daemon would take its workers along if it had the time: it must not see its JVM die."""
        workers = {process.pid for process in self.workers()}
        others = [process for process in self.members() if process.pid not in workers]
        for process in sorted(others, key=lambda process: process.name() == "java"):
            process.kill()
        self.process.wait(30)

    def said(self) -> str:
        return self.log.read_text(errors="replace")[-4000:]


@contextmanager
def driver(folder: Path, *arguments: str, name: str = "driver") -> Iterator[Driver]:
    """Start a driver on the scene in `folder`; whatever is left of it in the end is killed."""
    log = folder / f"{name}.log"
    command = [sys.executable, "-m", "tests.faults.driver", str(folder), *arguments]
    with log.open("wb") as sink:
        process = subprocess.Popen(
            command, cwd=REPOSITORY, env=environment(), stdout=sink, stderr=sink, start_new_session=True
        )
    started = Driver(process, log)
    try:
        yield started
    finally:
        started.kill()


def _session(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return None


def _is_worker(process: psutil.Process) -> bool:
    """A fork has its parent's command line; only the daemon's own parent is the JVM."""
    try:
        parent = process.parent()
        return "pyspark.daemon" in process.cmdline() and (parent is None or parent.name() != "java")
    except psutil.NoSuchProcess:
        return False


# --- a standalone cluster -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cluster:
    url: str
    folder: Path

    def executors_started(self) -> int:
        """A worker makes one folder for each executor that it launches."""
        return len([path for path in self.folder.glob("work-*/app-*/*") if path.is_dir()])


@contextmanager
def cluster(folder: Path) -> Iterator[Cluster]:
    """One master, two workers of one core each. Each worker has a loopback address of its own: Spark gives
    no second attempt to the host that has the first.
    """
    started: list[subprocess.Popen[bytes]] = []
    try:
        master_log = _launch(started, folder, "master", "127.0.0.1", "master.Master", "--port", "0")
        url = _wait_for_line(master_log, r"Starting Spark master at (spark://\S+)")
        for host in ("127.0.0.1", "127.0.0.2"):
            work = folder / f"work-{host}"
            log = _launch(
                started,
                folder,
                f"worker-{host}",
                host,
                "worker.Worker",
                "-c",
                "1",
                "-m",
                "1g",
                "-d",
                str(work),
                url,
            )
            _wait_for_line(log, r"Successfully registered with master (\S+)")
        yield Cluster(url, folder)
    finally:
        for process in reversed(started):
            process.send_signal(signal.SIGTERM)
        for process in started:
            process.wait(30)


def _launch(
    started: list[subprocess.Popen[bytes]], folder: Path, name: str, host: str, main: str, *more: str
) -> Path:
    """Start a daemon of Spark in the foreground; `spark-class` becomes the JVM, so its id is the JVM's."""
    log = folder / f"{name}.log"
    command = [
        *(str(SPARK_HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{main}"),
        *("--host", host, "--webui-port", "0", *more),
    ]
    settings = environment(SPARK_HOME=str(SPARK_HOME), SPARK_LOCAL_IP=host, SPARK_DAEMON_MEMORY="256m")
    with log.open("wb") as sink:
        started.append(subprocess.Popen(command, env=settings, stdout=sink, stderr=sink))
    return log


def _wait_for_line(log: Path, pattern: str) -> str:
    found: list[str] = []

    def look() -> bool:
        match = re.search(pattern, log.read_text(errors="replace"))
        found.extend([match[1]] if match else [])
        return bool(found)

    wait_until(look, f"{log.name} says {pattern}", 60)
    return found[0]
