"""The benchmark of the grid's mappings: a mapping that reads less must take less time."""

from __future__ import annotations

from dataclasses import replace

import pytest


@pytest.mark.parametrize("name", ["equality", "band", "any condition"])
def test_searches_do_not_follow_the_sections_of_a_mapping(name, tmp_path):
    """At 64 tasks and sizes of 1:64 the best mapping reads a quarter of the rows, with as many searches."""
    from bench import mappings

    (predicate,) = (one for one in mappings.PREDICATES if one.name == name)
    found = mappings.measure(replace(predicate, rows=13_000), 64, 64, 3, tmp_path)
    mid, opt, dynamic = (found[name] for name in mappings.OPERATORS)
    assert (mid["mapping"], opt["mapping"], dynamic["mapping"]) == ((8, 8), (1, 64), (1, 64))
    assert opt["rows_read"] == dynamic["rows_read"] < 0.3 * mid["rows_read"]
    assert mid["results"] == opt["results"] == dynamic["results"]
    # Of the new rows there is one piece of each input, and each meets one of the old rows: runs are small here.
    assert mid["searches"] == opt["searches"] == dynamic["searches"] == 64 * (1 + 1 + 1)


@pytest.mark.parametrize(
    ("rows", "ms", "predicate", "met"),
    [
        pytest.param(50, 1.9, "equality", [True], id="reads less, takes less"),
        pytest.param(50, 2.1, "equality", [False], id="reads less, takes longer"),
        pytest.param(50, 2.1, "any condition", [False], id="all pairs, takes longer"),
        pytest.param(99, 9.0, "equality", [], id="reads as much"),
    ],
)
def test_a_mapping_that_reads_less_must_take_less_time(rows, ms, predicate, met):
    from bench import mappings

    same = {"rows_read": 100, "slowest_ms": 2.0, "mean_ms": 1.0, "results": 7}
    operators = {
        "STATICMID": same,
        "STATICOPT": same | {"rows_read": rows, "slowest_ms": ms, "mean_ms": 0.9},
        "DYNAMIC": same,
    }
    found = [{"predicate": predicate, "tasks": 16, "ratio": 8, "operators": operators}]
    assert [finding.met for finding in mappings.find(found)] == met
    # The slowest task decides, for which all others wait; a mean task that is not ahead is named.
    operators["STATICOPT"]["mean_ms"] = 1.2
    assert [finding.met for finding in mappings.find(found)] == met


def test_the_table_of_mappings_says_how_often_the_mean_task_was_ahead(tmp_path):
    from bench import mappings

    figures = mappings.measure(replace(mappings.PREDICATES[0], rows=2_000), 4, 8, 4, tmp_path)
    mid, opt = (figures[name] for name in ("STATICMID", "STATICOPT"))
    opt["batch_ms"], mid["batch_ms"] = [1.0, 3.0], [2.0, 2.0]
    found = [{"predicate": "equality", "tasks": 4, "ratio": 8, "operators": figures}]
    opt["mean_ms"] = opt["slowest_ms"] = 2 * max(mid["slowest_ms"], mid["mean_ms"])
    text = mappings.section(found, "today")
    assert (
        text.startswith("Measured today")
        and "NOT MET in these, by the time of STATICMID's:\n\n| join" in text
    )
    assert "The mean task is not ahead: equality, 4 tasks, 1:8: STATICOPT" in text
    head, _, *rows = (line.split(" | ") for line in text.splitlines() if line.startswith("|"))
    missed = rows[: next(place for place, row in enumerate(rows) if row[0] == "| join")]
    assert [row[3] for row in missed if row[3] != "DYNAMIC"] == ["STATICOPT"], (
        "what DYNAMIC takes is measured"
    )
    assert all(len(row) == len(head) for row in missed)
    assert (
        missed[0][6] == f"{opt['slowest_ms'] / mid['slowest_ms']:.3f}" and "as many searches" in missed[0][-1]
    )
    header, _, *lines = rows[len(missed) :]
    assert len(lines) == 3 and all(len(line) == len(header) for line in lines)
    assert lines[1][-1] == "1 of 2 |" and lines[0][-1].strip(" |") == ""


def test_a_case_that_misses_its_demand_says_why():
    """Where all pairs are compared it is the area of a cell, whatever is read."""
    from bench import mappings

    same = {"rows_read": 100, "slowest_ms": 4.0, "mean_ms": 1.0, "searches": 9, "results": 7}
    cases = [
        ("any condition", 9, "the area of a cell"),
        ("band", 9, "as many searches"),
        ("band", 8, "as many results"),
    ]
    for predicate, searches, reason in cases:
        slower = same | {"rows_read": 50, "slowest_ms": 4.001, "searches": searches}
        operators = {"STATICMID": same, "STATICOPT": slower, "DYNAMIC": same}
        case = mappings.Case(
            {"predicate": predicate, "tasks": 2, "ratio": 8, "operators": operators}, "STATICOPT"
        )
        *_, ratio, _, why = mappings._missed(case)
        assert ratio == "1.000" and reason in why and not case.met
