"""The hubs that chaos befalls: queries that come and go, and what DuckDB says their answers are.

A hub is driven as a join is: its commands are one more input of each batch, in partitions of their own. Some queries are
given at every start. Commands add others, remove them, replace them, or are refused. An answer counts with its batch,
an event with its query.
"""

from __future__ import annotations

import datetime
import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tests.chaos.cases import SCHEMA, Batch, Case, to_table
from tests.life import Row
from tests.property.hub_helpers import AT, Asked, all_rows, ask_duckdb, read_answers
from watersmeet.engine.hub_ingest import BATCH_TIME
from watersmeet.engine.spec import Settings
from watersmeet.hubs.answers import ANSWERS
from watersmeet.hubs.catalogue import ADD, REMOVE
from watersmeet.hubs.stored import COMMANDS
from watersmeet.local.hub import COMMAND_SCHEMA, LocalHub
from watersmeet.local.stage import GivenRows, conform, record_batches
from watersmeet.model.keep import Keep

# With constants to fill in, so that templates are shared.
_TEXTS = (
    "SELECT l.id AS l FROM l AS l WHERE l.x >= {0}",
    "SELECT l.id AS l, r.id AS r FROM l AS l, r AS r WHERE l.k = r.k AND l.x = {0}",
    "SELECT l.id AS l, r.id AS r FROM l AS l, r AS r WHERE l.k = r.k AND l.x = r.x WINDOW 3 SECONDS",
    "SELECT m.id AS m, r.id AS r FROM m AS m, r AS r WHERE m.k = r.k AND r.x <> {0} WINDOW TUMBLING 4 SECONDS",
    "SELECT l.id AS l, m.id AS m, r.id AS r FROM l AS l, m AS m, r AS r WHERE l.k = m.k AND m.x = r.x AND r.k = {0}",
    "SELECT l.id AS l, a.id AS a, b.id AS b FROM l AS l, m AS a, m AS b WHERE l.k = a.k AND a.x = b.x WINDOW 4 SECONDS",
    "SELECT DISTINCT m.x AS x, l.k AS k FROM l AS l, r AS r, m AS m WHERE l.k = r.k AND r.x = m.x AND l.x = {0}",
    "SELECT a.id AS a, b.id AS b FROM m AS a, m AS b WHERE a.k = b.x AND a.x <= {0}",
    "SELECT DISTINCT l.x AS x, r.x AS y FROM l AS l, r AS r WHERE l.k = r.k AND l.x >= {0}",
    "SELECT DISTINCT m.k AS k FROM m AS m, r AS r WHERE m.k = r.k AND m.x <> {0} WINDOW 5 SECONDS",
)
_BAD = ("SELECT l.nope FROM l AS l", "SELECT l.id FROM", "SELECT l.id FROM l, r")
_GIVEN, _IDS, _CONSTANTS = 3, 6, 3
_COMMANDS_A_BATCH = (0, 0, 1, 2, 3)
_SECOND_US = 1_000_000
# The columns of the streams, with times that a hub takes.
_STORED = SCHEMA.set(SCHEMA.get_field_index("t"), pa.field("t", pa.timestamp("us", "UTC")))


# --- what happens -----------------------------------------------------------------------------------------------------


def given_queries(seed: int) -> dict[str, str]:
    """The queries of every start."""
    rng = random.Random(f"given {seed}")
    return {f"q{number}": _text(rng) for number in range(_GIVEN)}


def with_commands(batches: list[Batch], seed: int) -> list[Batch]:
    """The batches with their commands. A query that is given keeps its text: each start would be refused with it."""
    rng = random.Random(f"commands {seed}")
    given = given_queries(seed)
    return [{**batch, COMMANDS: _parts(_commands(rng, given), rng)} for batch in batches]


def _commands(rng: random.Random, given: Mapping[str, str]) -> list[Row]:
    rows: list[Row] = []
    for at in range(rng.choice(_COMMANDS_A_BATCH)):
        id_ = f"q{rng.randrange(_IDS)}"
        if rng.random() < 0.4:
            rows.append((REMOVE, id_, None, at))
        elif rng.random() < 0.15:
            rows.append((ADD, f"bad{at}", rng.choice(_BAD), at))
        else:
            rows.append((ADD, id_, given.get(id_) or _text(rng), at))
    return rows


def _text(rng: random.Random) -> str:
    return rng.choice(_TEXTS).format(rng.randrange(_CONSTANTS))


def _parts(rows: list[Row], rng: random.Random) -> list[list[Row]]:
    """In two partitions: their times order them, not their places."""
    parts: list[list[Row]] = [[], []]
    for row in rng.sample(rows, len(rows)):
        rng.choice(parts).append(row)
    return [part for part in parts if part]


# --- one start --------------------------------------------------------------------------------------------------------


@dataclass
class HubStart(LocalHub):
    """A start of the hub, with what `tests.life` wants of a join."""

    @property
    def stages(self) -> tuple[HubStart]:
        return (self,)

    def arriving(self, name: str, rows: GivenRows) -> Iterator[pa.RecordBatch]:
        """Rows as ingest takes them. The time of a batch is Spark's, which a replay finds again."""
        for one in record_batches(rows):
            if name == COMMANDS:
                yield conform(name, one, COMMAND_SCHEMA)
            else:
                at = pa.repeat(pa.scalar(_time_us(self.number), pa.timestamp("us", "UTC")), len(one))
                yield conform(name, _stored(one), self.schemas[name]).append_column(BATCH_TIME, at)


def start_hub(
    case: Case,
    seed: int,
    state: str,
    *,
    tasks: int,
    settings: Mapping[str, Any],
    run: str,
    query: str,
    clock: Callable[[], float],
) -> HubStart:
    lateness = case.how.get("lateness")
    return HubStart(
        dict.fromkeys(case.inputs, _STORED),
        state,
        given_queries(seed),
        tasks=tasks,
        time=case.how.get("time", {}),
        lateness=None if lateness is None else datetime.timedelta(seconds=lateness),
        # Most hubs keep steps. With so few rows none would by itself.
        keep=Keep.ALWAYS if seed % 3 else Keep.NEVER,
        settings=Settings(state=state, tasks=tasks, **settings),
        run=run,
        query=query,
        clock=clock,
    )


def _time_us(batch: int) -> int:
    return 2 * batch * _SECOND_US


def _stored(rows: pa.RecordBatch) -> pa.RecordBatch:
    times = pc.multiply(rows.column("t"), _SECOND_US).cast(pa.timestamp("us")).cast(pa.timestamp("us", "UTC"))
    return rows.set_column(rows.schema.get_field_index("t"), "t", times)


# --- what must come out -----------------------------------------------------------------------------------------------


def shown(rows: Iterable[Row]) -> Counter[Row]:
    """The answers and events among rows of the output, so that they can be compared."""
    columns = list(zip(*rows, strict=True)) or [()] * len(ANSWERS)
    found = pa.RecordBatch.from_arrays(
        [pa.array(column, one.type) for column, one in zip(columns, ANSWERS, strict=True)], schema=ANSWERS
    )
    answers = Counter({("answer", *one): count for one, count in read_answers([found]).items()})
    events = zip(*(found.column(name).to_pylist() for name in ("event", "query", "batch")), strict=True)
    return answers + Counter(one for one in events if one[0] != "answer")


def expected_of_hub(case: Case, batches: Sequence[Batch], seed: int) -> Counter[Row]:
    """All answers of all queries that were live, by DuckDB, and what became of each command."""
    asked, events = _lives(batches, given_queries(seed))
    tables = {name: _all_rows(case, name, batches) for name in case.inputs}
    answers = ask_duckdb([one for one in asked if one.end > one.start], tables)
    return events + Counter({("answer", *one): count for one, count in answers.items()})


def _all_rows(case: Case, name: str, batches: Sequence[Batch]) -> pa.Table:
    parts = []
    for number, batch in enumerate(batches):
        rows = to_table([row for part in batch[name] for row in part]).combine_chunks()
        of_batch = pa.repeat(pa.scalar(_time_us(number)), len(rows))
        times = pc.multiply(rows["t"], _SECOND_US).combine_chunks() if "time" in case.how else of_batch
        rows = rows.append_column(AT, times)
        parts.append((rows.to_batches() or [pa.RecordBatch.from_pylist([], rows.schema)])[0])
    lateness = case.how["lateness"] * _SECOND_US if "time" in case.how else None
    return all_rows(parts, lateness)


def _lives(batches: Sequence[Batch], given: Mapping[str, str]) -> tuple[list[Asked], Counter[Row]]:
    """From when to when each query is live, and the events of the commands."""
    live = {id_: Asked(id_, text, -1, len(batches)) for id_, text in given.items()}
    ended: list[Asked] = []
    events: Counter[Row] = Counter(("added", id_, 0) for id_ in given)
    for number, batch in enumerate(batches):
        commands = sorted(itertools.chain(*batch[COMMANDS]), key=lambda row: row[-1])
        for op, id_, text, _ in commands:
            if op == ADD and id_ in live:
                event = None if live[id_].sql == text else "refused"
            elif op == ADD and text in _BAD:
                event = "refused"
            elif op == ADD:
                live[id_], event = Asked(id_, text, number, len(batches)), "added"
            elif id_ in live:
                ended.append(replace(live.pop(id_), end=number))
                event = "removed"
            else:
                event = "refused"
            if event is not None:
                events[event, id_, number] += 1
    return [*ended, *live.values()], events
