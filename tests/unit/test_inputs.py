"""Inputs that cannot be joined are refused before anything is opened, in the words of who gave them."""

from __future__ import annotations

import re
from pathlib import Path
from unittest.mock import Mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame

import watersmeet as wm
from watersmeet.errors import ConfigError, PredicateError, UsageError
from watersmeet.jobs.file import parse_job
from watersmeet.local.join import LocalJoin
from watersmeet.testing import StreamScript

SCHEMA = pa.schema({"k": pa.int64(), "x": pa.int64(), "s": pa.string(), "t": pa.int64()})
PATH = "a.k = b.k AND b.x = c.x"
SEVENTEEN = [f"i{number}" for number in range(17)]


def join(names, on: str = PATH, state: Path | str = "/nowhere", **how) -> LocalJoin:
    return LocalJoin(dict.fromkeys(names, SCHEMA), on=on, state=str(state), **how)


@pytest.mark.parametrize(
    ("names", "problem"),
    [
        ([], "2 to 16 inputs by name, got 0: write for example"),
        (["a"], "2 to 16 inputs by name, got 1: write for example"),
        (SEVENTEEN, "2 to 16 inputs by name, got 17: join some of them first"),
        # It would be stored under the same name as the second arrangement of b.
        (["b", "b.1", "c"], "the input name 'b.1' cannot be used in SQL"),
        (["", "b", "c"], "the input name '' cannot be used in SQL"),
        ([1, 2, 3], "the input name 1 cannot be used in SQL"),
    ],
)
def test_names_and_numbers_of_inputs_that_are_refused(names, problem):
    with pytest.raises(UsageError, match=problem):
        join(names)


@pytest.mark.parametrize(
    ("on", "problem"),
    [
        ("a.k = b.k AND b.x = z.x", "z is not an input(.|\n)*the inputs are a, b, c"),
        ("a.k = b.k AND b.x = c.z", "z is not a column of c"),
        ("a.k = b.k AND x = c.x", r"x has no input before it(.|\n)*write a.x or b.x or c.x"),
        ("a.k = b.k", "nothing joins c to a, b(.|\n)*add a condition between c and another input"),
        ("a.k = b.k AND c.x = 1", "nothing joins c to a, b"),
        # Only Spark parses text as it does.
        ("a.s = b.k AND b.k = c.s", "only Spark can compute the key CAST"),
    ],
)
def test_conditions_that_are_refused(tmp_path, on, problem):
    with pytest.raises(PredicateError, match=problem):
        join("abc", on, tmp_path)


@pytest.mark.parametrize(
    ("how", "problem"),
    [
        ({"strategy": "hash"}, '"hash" needs a key that joins all inputs: use "delta"'),
        ({"cells": 4}, 'belong to strategy="grid"; this join takes "delta"'),
        ({"select": ["z.k"]}, "z is not an input"),
        ({"within": 5, "time": {"a": "t", "b": "t"}}, "time= has no column for input c"),
        ({"within": 5, "time": dict.fromkeys("abcd", "t")}, "time= names 'd', which is no input"),
        ({"how": "left"}, "is for a join with a wm.table"),
    ],
)
def test_arguments_that_are_refused(tmp_path, how, problem):
    with pytest.raises(UsageError, match=problem):
        join("abc", PATH, tmp_path, **how)


def test_tables_need_a_stream(tmp_path):
    pq.write_table(pa.table({"k": [1], "y": [1]}), tmp_path / "t.parquet")
    table = wm.table(tmp_path / "t.parquet", key="k")
    with pytest.raises(UsageError, match="inputs t and u are both tables: one of them must be a stream"):
        LocalJoin({"t": table, "u": table}, on="t.k = u.k", state=str(tmp_path))
    with pytest.raises(UsageError, match="inputs t and u and v are all tables"):
        LocalJoin(dict.fromkeys("tuv", table), on="t.k = u.k AND u.k = v.k", state=str(tmp_path))
    with pytest.raises(UsageError, match="2 to 16 inputs by name, got 17"):
        LocalJoin({**dict.fromkeys(SEVENTEEN[1:], SCHEMA), "t": table}, on="true", state=str(tmp_path))


def test_rows_of_a_table_are_refused(tmp_path):
    pq.write_table(pa.table({"k": [1], "y": [1]}), tmp_path / "t.parquet")
    table = wm.table(tmp_path / "t.parquet", key="k")
    local = LocalJoin(
        {"a": SCHEMA, "b": SCHEMA, "t": table}, on="a.k = b.k AND b.k = t.k", state=str(tmp_path)
    )
    with pytest.raises(UsageError, match="there is no input t; the inputs are a, b"):
        local.batch(t=pa.table({"k": [1], "y": [1]}))


def test_what_is_no_schema_and_rows_of_another_schema_are_refused(tmp_path):
    with pytest.raises(UsageError, match="input c is a list: give its pyarrow.Schema"):
        LocalJoin({"a": SCHEMA, "b": SCHEMA, "c": ["k"]}, on=PATH, state=str(tmp_path))
    joined = join("abc", PATH, tmp_path)
    with pytest.raises(UsageError, match="input b: the rows have no column x; the columns are k, x, s, t"):
        joined.batch(b=pa.table({"k": [1]}))
    # An arrangement is no input.
    with pytest.raises(UsageError, match="there is no input b.1; the inputs are a, b, c"):
        joined.batch(**{"b.1": SCHEMA.empty_table()})


def test_a_script_refuses_rows_of_a_stream_that_it_does_not_have(tmp_path):
    with StreamScript(Mock(), tmp_path, a="k int", b="k int", c="k int") as script:
        for rows in ([(1,)], Mock(spec=DataFrame)):
            with pytest.raises(ValueError, match="there is no stream d; the streams are a, b, c"):
                script.add(a=[], d=rows)


def job(inputs: str) -> str:
    return f'{inputs}\n[join]\non = "a.k = b.k"\n[sink]\nformat = "noop"\n[job]\ncheckpoint = "cp"'


RATE = 'format = "rate"'


@pytest.mark.parametrize(
    ("inputs", "problem"),
    [
        (f"[inputs.a]\n{RATE}", "j.toml needs two or more inputs"),
        (
            "\n".join(f"[inputs.{name}]\n{RATE}" for name in SEVENTEEN),
            r"j.toml: \[inputs\]: .*got 17: join some",
        ),
        (
            f'[inputs.a]\n{RATE}\n[inputs."a.1"]\n{RATE}',
            r"j.toml: \[inputs\]: the input name 'a.1' cannot be used",
        ),
        (
            '[inputs.t]\npath = "t"\nkey = "k"\n[inputs.u]\npath = "u"\nkey = "k"',
            r"j.toml: \[inputs\]: inputs t and u are both tables",
        ),
    ],
)
def test_job_files_are_refused_before_spark_starts(inputs, problem):
    with pytest.raises(ConfigError, match=problem):
        parse_job(job(inputs), Path("/jobs/j.toml"), {})


@pytest.mark.parametrize(
    "arguments, words",
    [
        ({"memory": "lots"}, "memory='lots': give a number of bytes"),
        ({"memory": True}, "memory=True: give a number of bytes"),
        ({"tasks": 0}, "tasks must be an integer of at least 1, not 0"),
        ({"tasks": "2"}, "tasks must be an integer of at least 1, not '2'"),
        ({"partitions": 0}, "partitions=0: give the number of partitions, at least 1"),
        ({"max_delay": "3 seconds"}, "max_delay= is for a join with a wm.table"),
        ({"select": []}, "select has no columns"),
        ({"name": "tables"}, "name='tables' is the folder of the tables in the state: take another name"),
    ],
    ids=str,
)
def test_the_local_driver_takes_and_refuses_arguments_as_the_api_does(tmp_path, arguments, words):
    schema = pa.schema({"k": pa.int64()})
    with pytest.raises(UsageError, match=re.escape(words)):
        LocalJoin({"l": schema, "r": schema}, on="l.k = r.k", state=str(tmp_path), **arguments)
    assert not any(tmp_path.iterdir())


def test_the_local_driver_reads_a_budget_with_a_unit(tmp_path):
    schema = pa.schema({"k": pa.int64()})
    join = LocalJoin({"l": schema, "r": schema}, on="l.k = r.k", state=str(tmp_path), memory="2 MB")
    assert join.operator.spec.scheme.memory == 2 << 20
