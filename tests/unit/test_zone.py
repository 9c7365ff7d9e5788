"""Which expressions depend on the session's time zone, and what a join records of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from watersmeet.engine.compile import Asked, compile_join
from watersmeet.engine.compile_lookup import TableSide, compile_lookup
from watersmeet.errors import StateMismatch
from watersmeet.model.signature import JoinSignature
from watersmeet.model.types import parse_type
from watersmeet.plan.compatible import check_compatible
from watersmeet.predicate import parse_predicate

COLUMNS = {
    "id": "int", "ts": "timestamp", "at": "timestamp", "ntz": "timestamp_ntz", "d": "date", "s": "string", "n": "bigint",
    "st": "struct<t:timestamp,i:int>", "x": "double",
}  # fmt: skip
SCHEMAS = {name: {column: parse_type(kind) for column, kind in COLUMNS.items()} for name in ("l", "r")}


def signature(on: str, zone: str = "Europe/Berlin") -> JoinSignature:
    return compile_join(Asked(parse_predicate(on, SCHEMAS), None, SCHEMAS, zone=zone)).signature


# Values of an input that mean the same in every zone. tests/spark/test_zones.py asks Spark about the same ones.
FREE = [
    "l.ts", "l.ntz", "l.d", "l.n", "unix_micros(l.ts)", "unix_millis(l.ts)", "unix_timestamp(l.ts)",
    "CAST(l.ts AS bigint)", "CAST(l.ts AS double)", "timestamp_micros(l.n)", "coalesce(l.ts, l.at)", "l.st.t",
    "greatest(l.ts, l.at)", "l.ts + INTERVAL 90 MINUTES", "l.ts - INTERVAL 23 HOURS", "hash(l.ts)",
    "CASE WHEN l.n > 0 THEN l.ts ELSE l.at END", "CASE WHEN l.ts < l.at THEN 1 ELSE 2 END",
    "hour(l.ntz)", "year(l.d)", "month(l.ntz)", "to_date(l.ntz)", "CAST(l.ntz AS date)", "CAST(l.d AS timestamp_ntz)",
    "date_add(l.d, 3)", "datediff(l.d, DATE '2026-01-31')", "CAST(l.d AS string)", "to_date(l.s)", "upper(l.s)",
    "CASE WHEN l.ts < TIMESTAMP '2026-01-31 12:30:00Z' THEN 1 ELSE 2 END",
]  # fmt: skip

# Values that change with the zone.
DEPENDENT = [
    "to_date(l.ts)", "hour(l.ts)", "dayofyear(l.ts)", "date_trunc('day', l.ts)", "CAST(l.ts AS date)", "CAST(l.ts AS string)",
    "CAST(l.ts AS timestamp_ntz)", "CAST(l.d AS timestamp)", "CAST(l.ntz AS timestamp)", "CAST(left(l.s, 19) AS timestamp)",
    "to_timestamp(left(l.s, 19))", "date_format(l.ts, 'HH')", "from_unixtime(l.n)", "unix_timestamp(left(l.s, 19))",
    "l.ts + INTERVAL 1 DAY", "l.ts - INTERVAL 36 HOURS", "l.ts + INTERVAL 1 MONTH", "l.ts - l.at",
    "concat(l.ts, 'x')", "coalesce(l.ntz, l.ts)", "CASE WHEN l.ts < l.d THEN 1 ELSE 2 END",
    "CASE WHEN l.ts < TIMESTAMP '2026-03-29 12:30:00' THEN 1 ELSE 2 END", "datediff(l.ts, l.at)", "md5(CAST(l.ts AS string))",
    "hour(l.s)", "to_date(l.s, 'yyyy-MM-dd HH:mm:ssXXX')", "unix_timestamp(l.d)", "trunc(l.ts, 'WEEK')",
    "l.d + INTERVAL 1 HOUR", "CAST(l.d - INTERVAL 1 HOUR AS bigint)",
]  # fmt: skip


def as_key(value: str) -> str:
    """An equality of the same value of both inputs."""
    return f"{value} = {value.replace('l.', 'r.')}"


@pytest.mark.parametrize("value", FREE)
def test_a_key_that_is_free_of_the_zone_records_none(value):
    found = signature(as_key(value))
    assert found.zone == ""
    check_compatible(found, signature(as_key(value), zone="Asia/Tokyo"))


@pytest.mark.parametrize("value", DEPENDENT)
def test_a_key_that_depends_on_the_zone_records_it(value):
    found = signature(as_key(value))
    assert found.zone == "Europe/Berlin"
    with pytest.raises(
        StateMismatch, match="written under Europe/Berlin, now it is Asia/Tokyo.*timeZone to Europe"
    ):
        check_compatible(found, signature(as_key(value), zone="Asia/Tokyo"))
    check_compatible(found, signature(as_key(value)))


@pytest.mark.parametrize(
    ("on", "zone"),
    [
        ("l.ts = r.d", "Europe/Berlin"),
        ("l.ts = r.ntz", "Europe/Berlin"),
        ("l.ts = r.ts AND l.d = r.d", ""),
        ("l.d = r.ntz", ""),
        ("l.id = r.id AND l.d = r.ts", "Europe/Berlin"),
        ("l.ts <=> r.ts", ""),
        # Conditions on one input are decided when a row arrives.
        ("l.id = r.id AND hour(l.ts) < 12", "Europe/Berlin"),
        ("l.x < r.x OR l.n < r.n AND l.id <> r.id", ""),
        ("(l.x < r.x OR l.n < r.n) AND hour(r.ts) < 12", "Europe/Berlin"),
        # Conditions on a pair are decided when it comes out.
        ("l.id = r.id AND hour(l.ts) = hour(r.ts) + 1", "Europe/Berlin"),
        ("l.id = r.id AND hour(l.ts) < hour(r.ts)", ""),
        # Bands: sorted by the moment itself, or by a computed one.
        ("abs(l.ts - r.ts) <= INTERVAL 5 MINUTES", ""),
        ("l.ts BETWEEN r.ts AND r.ts + INTERVAL 3 DAYS", ""),
        ("to_date(l.ts) <= r.d", "Europe/Berlin"),
        ("l.ts <= r.d", ""),  # no band: every pair is looked at
    ],
)
def test_keys_and_conditions_on_one_input_count(on, zone):
    assert signature(on).zone == zone


@pytest.mark.parametrize(("left", "zone"), [(False, "Europe/Berlin"), (True, "")])
def test_a_table_is_looked_up_under_the_recorded_zone(left, zone):
    """A left join takes in rows whether or not they pass the condition."""
    side = TableSide("r", ("d",))

    def looked_up(on: str) -> str:
        asked = Asked(parse_predicate(on, SCHEMAS), None, SCHEMAS, zone="Europe/Berlin")
        return compile_lookup(asked, side, left=left).signature.zone

    assert looked_up("to_date(l.ntz) = r.d") == ""
    assert looked_up("to_date(l.ts) = r.d") == "Europe/Berlin"
    if not left:
        assert looked_up("l.d = r.d AND hour(l.ts) < 12") == zone


def test_a_state_that_does_not_name_its_zone_goes_on():
    """It was written before zones were recorded: which one it was is not known."""
    new = signature("to_date(l.ts) = r.d")
    check_compatible(replace(new, zone=""), new)


def test_a_start_that_does_not_know_its_zone_is_told_how_to_name_it():
    """To accept it would erase the recorded zone."""
    on = "to_date(l.ts) = r.d"
    remedy = r'now it is unknown.*pass options=\{"timeZone": "Europe/Berlin"\}'
    with pytest.raises(StateMismatch, match=remedy):
        check_compatible(signature(on), signature(on, zone=""))
    check_compatible(signature(on, zone=""), signature(on, zone=""))


def test_spellings_of_utc_are_one_zone():
    def recorded(zone: str) -> JoinSignature:
        from watersmeet.predicate import normal_zone

        return signature("to_date(l.ts) = r.d", normal_zone(zone))

    for zone in ("Etc/UTC", "GMT", "Z", "+00:00", "UTC+0"):
        check_compatible(recorded("UTC"), recorded(zone))
    with pytest.raises(StateMismatch):
        check_compatible(recorded("UTC"), recorded("+01:00"))
