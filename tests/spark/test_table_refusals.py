"""What is wrong with a join of a stream and a table is said at once, with what to do, and leaves nothing behind."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import watersmeet as wm
from tests.spark.shop import STREAM, join, table

BAD: list[Any] = [
    pytest.param({"key": "idd"}, wm.TableError, r"has no column idd; did you mean id\?", id="key"),
    pytest.param(
        {"key": ["id", "C"]}, wm.TableError, r"has no column C; did you mean c\?", id="case of a key"
    ),
    pytest.param(
        {"on": "s.k = p.idd"}, wm.PredicateError, r"(?s)not a column of p.*did you mean id\?", id="column"
    ),
    pytest.param(
        {"on": "s.c = p.c"}, wm.PredicateError, "add s.<column> = p.id", id="no equality with the key"
    ),
    pytest.param({"on": "s.k > p.id"}, wm.PredicateError, "add s.<column> = p.id", id="an inequality"),
    pytest.param({"on": "s.k = p.id + 1"}, wm.PredicateError, "add s.<column> = p.id", id="a computed key"),
    pytest.param({"on": "s.k = p.id OR s.c = p.c"}, wm.PredicateError, "add s.<column> = p.id", id="or"),
    pytest.param(
        {"key": ["id", "c"]}, wm.PredicateError, "add s.<column> = p.c", id="half of a composite key"
    ),
    pytest.param(
        {"key": "c", "on": "s.k = p.c"}, wm.PredicateError, r"CAST\(`s`.`k` AS STRING\) = p.c", id="types"
    ),
    pytest.param(
        {"on": "s.k + 0.5 = p.id"},
        wm.PredicateError,
        r"CAST\(`s`.`k` \+ 0.5BD AS INT\) = p.id",
        id="computed type",
    ),
    pytest.param({"on": lambda s, p: None}, wm.UsageError, "a table is found by its key", id="a function"),
    pytest.param({"how": "outer"}, wm.UsageError, "how='outer' is unknown for a table", id="how"),
    pytest.param({"within": "1 hour"}, wm.UsageError, "within= is for a join of streams", id="within"),
    pytest.param({"cells": 4}, wm.UsageError, "cells= is for a join of streams", id="cells"),
    pytest.param({"name": "tables"}, wm.UsageError, "name='tables'", id="name"),
    pytest.param({"strategy": "hash"}, wm.UsageError, "'hash' is not for a table: use one of", id="strategy"),
    pytest.param(
        {"max_delay": "soon"}, wm.UsageError, "max_delay must be a duration.*got 'soon'", id="delay"
    ),
    pytest.param(
        {"max_delay": 5, "of": {"in_place": True}},
        wm.UsageError,
        "in_place=True cannot be combined with max_delay: if a file changes while rows wait",
        id="waiting in place",
    ),
    pytest.param({"memory": "much"}, wm.UsageError, "memory", id="memory"),
    pytest.param(
        {"how": "left", "on": "s.k = p.id AND upper(s.c) = upper(p.c)"},
        wm.PredicateError,
        "only Spark can evaluate a part of this one",
        id="left with a part for Spark",
    ),
    pytest.param(
        {"of": {"in_place": True}, "file": "unsorted.parquet"},
        wm.TableError,
        "cannot be used in place: the keys of row group .* overlap. Sort it by id",
        id="not sorted",
    ),
    pytest.param({"file": "none.parquet"}, wm.TableError, "is not there: check the path", id="no file"),
    pytest.param({"file": "shop.db"}, wm.TableError, "cannot be read as Parquet", id="no Parquet"),
]


@pytest.fixture(scope="module")
def stream(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> DataFrame:
    return spark.readStream.schema(STREAM).parquet(str(tmp_path_factory.mktemp("stream")))


@pytest.mark.parametrize(("bad", "kind", "message"), BAD)
def test_what_is_wrong_is_refused_at_once(stream, shop, tmp_path, bad, kind, message):
    said = {"on": "s.k = p.id", "state": str(tmp_path), **bad}
    file, key, of = (
        said.pop(name, usual) for name, usual in (("file", "sorted.parquet"), ("key", "id"), ("of", {}))
    )
    with pytest.raises(kind, match=message):
        join({"s": stream, "p": table(shop.folder / file, key, **of)}, **said)
    if kind is not wm.TableError and not of:
        # What is wrong with the table's files is not seen by its columns.
        with pytest.raises(kind, match=message):
            wm.explain({"s": stream, "p": table(shop.folder / file, key)}, **said)


def test_what_cannot_be_an_input_is_refused(stream, shop, tmp_path):
    with pytest.raises(wm.UsageError, match="a table does not stream"):
        table(stream, key="k")
    both = {"p": table(shop.sorted, key="id"), "q": table(shop.unsorted, key="id")}
    with pytest.raises(wm.UsageError, match="inputs p and q are both tables"):
        join(both, "p.id = q.id", state=str(tmp_path))
    with pytest.raises(wm.UsageError, match=r"make it a table, wm.table\(p, key=...\)"):
        join({"s": stream, "p": shop.frame}, "s.k = p.id", state=str(tmp_path))
    with pytest.raises(wm.UsageError, match='streams and batches are joined with how="inner"'):
        join({"l": stream, "r": stream}, "l.k = r.k", state=str(tmp_path), how="left")
    with pytest.raises(wm.UsageError, match="max_delay= is for a join with a wm.table"):
        join({"l": stream, "r": stream}, "l.k = r.k", state=str(tmp_path), max_delay=5)
    with pytest.raises(wm.UsageError, match="max_delay must be a duration"):
        join(
            {"s": shop.frame, "p": table(shop.sorted, key="id")},
            "s.id = p.id",
            state=str(tmp_path),
            max_delay="soon",
        )
    with pytest.raises(wm.TableError, match="has no column idd; did you mean id"):
        join({"s": stream, "p": table(shop.frame, key="idd")}, "s.k = p.idd", state=str(tmp_path))
    assert not [path for path in tmp_path.rglob("*") if path.is_file()], (
        "a refused join left something behind"
    )


def test_the_advice_on_types_is_good(stream, shop, tmp_path):
    on = "CAST(s.k AS STRING) = p.c"
    given = {"s": stream, "p": table(shop.sorted, key="c")}
    assert join(given, on, state=str(tmp_path)).columns == ["s", "p"]
