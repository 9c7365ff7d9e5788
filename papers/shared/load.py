"""How busy other processes kept the machine while an experiment ran: whether its times can be trusted.

A thread looks at this process and all below it once in a while, and at the whole machine. What the machine did and these
processes did not is others' work. A process that starts and ends between two looks counts as somebody else's: commands
of a shell are, Spark and its Python workers are not.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from types import TracebackType

import psutil

_LOOK_S = 1.0
# Looks that make up the minute of which the worst one is told.
_LOOKS = 60
# Of two cores: a tenth on average is what the benchmarks accept too; a third in a single minute is a whole other run.
QUIET_SHARE, QUIET_MINUTE = 0.10, 0.33
_BUSY = ("user", "nice", "system", "irq", "softirq", "steal")


@dataclass(frozen=True, slots=True)
class Load:
    """The part of all CPU time that other processes took: on average, and in the worst minute."""

    share: float
    worst: float

    @property
    def quiet(self) -> bool:
        return self.share <= QUIET_SHARE and self.worst <= QUIET_MINUTE

    @property
    def text(self) -> str:
        said = f"Other processes took {self.share:.0%} of the machine's CPU time, {self.worst:.0%} in the worst minute"
        if self.quiet:
            return f"{said}: a quiet machine."
        return f"{said}: a busy machine. Times by the wall clock are not reliable, and those of the processor longer than on a quiet one."


class OtherLoad:
    """Watch while the block runs: `with OtherLoad() as watched: ...`, then `watched.load`."""

    def __init__(self, look_s: float = _LOOK_S) -> None:
        self.load = Load(0.0, 0.0)
        self._look_s = look_s
        self._own_s: dict[tuple[int, float], float] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="other-load", daemon=True)
        # Seconds of others and of the whole machine at each look of the last minute.
        self._last: deque[tuple[float, float]] = deque(maxlen=_LOOKS + 1)
        self._first = 0.0, 0.0
        self._worst = 0.0

    def __enter__(self) -> OtherLoad:
        self._first = self._look()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        last = self._look()
        share = _part(self._first, last)
        self.load = Load(share, max(share, self._worst))

    def _watch(self) -> None:
        while not self._stop.wait(self._look_s):
            self._look()

    def _look(self) -> tuple[float, float]:
        """Seconds of others and of all since the machine was started, but for a constant."""
        me = psutil.Process()
        for process in (me, *me.children(recursive=True)):
            try:
                times = process.cpu_times()
                self._own_s[process.pid, process.create_time()] = times.user + times.system
            except psutil.Error:
                continue
        machine = psutil.cpu_times()
        busy = sum(getattr(machine, name) for name in _BUSY)
        seen = busy - sum(self._own_s.values()), busy + machine.idle + machine.iowait
        self._last.append(seen)
        if len(self._last) > _LOOKS:
            self._worst = max(self._worst, _part(self._last[0], seen))
        return seen


def _part(before: tuple[float, float], after: tuple[float, float]) -> float:
    return min(1.0, max(0.0, after[0] - before[0]) / max(1e-9, after[1] - before[1]))
