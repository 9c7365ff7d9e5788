"""The benchmark of the hub: its rows and queries, what it measures, its section."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from bench.hub_check import Sum, by_duckdb, by_hub, compared
from bench.hub_load import (
    NAMES,
    Load,
    domain_for,
    grouped_queries,
    shape_queries,
    template_queries,
)
from bench.hub_local import MeasuredHub
from bench.hub_resident import Resident, measure

SMALL = Load(domain=12, batch_rows=200, compared=True)


def test_queries_of_a_template_differ_in_a_constant_and_shapes_in_more():
    from watersmeet.hubs.templates import TemplateReader
    from watersmeet.model.types import BIGINT

    reader = TemplateReader({name: {f"a{number}": BIGINT for number in range(10)} for name in NAMES})
    for queries, templates in ((template_queries(3), 3), (grouped_queries(3), 3), (shape_queries(50), 50)):
        read = [reader.read(text) for text in queries.values()]
        assert len({one.template for one in read}) == templates
        assert {len(one.template.streams) for one in read} == {4}
    assert len(template_queries(3)) == 300


def test_a_batch_has_about_as_many_answers_as_the_domain_is_chosen_for():
    domain = domain_for(answers=2_000, chains=100, batch_rows=2_000, before_rows=4_000)
    load, queries = Load(domain, 2_000, compared=False), shape_queries(100)
    before, after = (by_duckdb(load, queries, batches).answers for batches in (3, 4))
    assert 1_600 < after - before < 2_400


@pytest.mark.parametrize("is_compared", [True, False], ids=["templates", "shapes"])
def test_the_hub_has_the_answers_of_duckdb_and_other_queries_have_not(tmp_path, is_compared):
    queries = template_queries(2) if is_compared else shape_queries(4)
    load = replace(SMALL, compared=is_compared)
    mine, wanted = compared(load, queries, batches=4)
    assert mine == wanted and mine.answers > 50
    fewer = dict(list(queries.items())[1:] if not is_compared else list(template_queries(1).items()))
    assert by_hub(tmp_path / "fewer", load, fewer, 4) != wanted
    assert by_hub(tmp_path / "other", replace(load, seed=1), queries, 4).checksum != wanted.checksum


def test_a_history_without_answers_changes_no_later_batch_and_groups_answer_as_their_queries(tmp_path):
    told = MeasuredHub(tmp_path / "told", SMALL, template_queries(4))
    untold = MeasuredHub(tmp_path / "untold", SMALL, template_queries(4))
    grouped = MeasuredHub(tmp_path / "grouped", SMALL, grouped_queries(4))
    for hub in (untold, grouped):
        hub.history(3)
    earlier = [told.timed().found for _ in range(3)]
    found = [hub.timed() for hub in (told, untold, grouped)]
    assert len({one.found for one in found}) == 1
    assert found[0].found > max(earlier) > 0
    assert found[0].cpu_s >= found[0].spread_s > 0


def test_bytes_of_queries_are_those_that_came_with_them(tmp_path):
    few, many = (measure(Resident(str(tmp_path / str(count)), "shapes", count)) for count in (50, 1_000))
    assert many > few + 100_000


@pytest.mark.parametrize("part, demands", [("templates", 3), ("shapes", 2), ("commands", 7), ("check", 2)])
def test_each_part_says_every_demand_and_its_setting(part, demands):
    from bench.hub import measure as measured

    notes: list[str] = []
    found = measured(part, True, notes.append)
    assert len(found) == demands and all(one.met is not None for one in found)
    assert part == "check" or any("seed" in note or "CPU ms" in note for note in notes)
    right = [one for one in found if one.measured.startswith(("equal", "differ", "in force", "NOT in"))]
    assert all(one.measured.startswith(("equal", "in force")) for one in right)


def test_other_answers_than_those_of_duckdb_miss_the_demand():
    from bench.hub_check import _finding

    assert _finding("answers", Sum(3, "7"), Sum(3, "7")).met
    assert not _finding("answers", Sum(3, "7"), Sum(3, "8")).met
    assert not _finding("answers", Sum(0, "0"), Sum(0, "0")).met


def test_the_section_has_every_part_and_is_not_written_without_one(tmp_path):
    from typer import BadParameter

    from bench.hub import PARTS, hub, section
    from bench.parts import stored_outcome

    for part in PARTS:
        finding = {"demand": f"{part} is fast", "target": "< 1 s", "measured": "2 s", "met": False}
        (tmp_path / f"{part}.json").write_text(
            json.dumps({"notes": [f"{part}: 5 rows"], "findings": [finding]})
        )
    text = section(stored_outcome(tmp_path, PARTS), "2026-01-01")
    assert "Measured 2026-01-01" in text
    for part in PARTS:
        assert f"| {part} is fast | < 1 s | 2 s | NOT MET |" in text and f"- {part}: 5 rows." in text
    with pytest.raises(BadParameter, match="no results yet: templates; shapes; commands; spark"):
        hub(only=["check"], quick=True, date="2026-01-01")
