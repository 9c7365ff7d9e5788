"""All scenarios, in the order of the report."""

from __future__ import annotations

from tests.chaos.disks import EIO, FULL, LATE
from tests.chaos.flips import FLIPS_SCENARIO
from tests.chaos.kills import KILLS, REPLAYS
from tests.chaos.power import POWER
from tests.chaos.races import RACES
from tests.chaos.rivals import CLEANER, DRIVERS, ZOMBIES

SCENARIOS = (KILLS, REPLAYS, FLIPS_SCENARIO, RACES, CLEANER, DRIVERS, ZOMBIES, POWER, EIO, FULL, LATE)
