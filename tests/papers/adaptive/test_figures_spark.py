"""The reproduction on Spark: results are all there under every operator, figures come from the manifests."""

from __future__ import annotations

from threading import Event

import pytest

from papers.adaptive.operators import DYNAMIC, SHJ, STATICMID
from papers.adaptive.spark_run import Setting, run_on_spark
from papers.shared import tpch
from papers.shared.arrival import cut, steady, write_streams
from papers.shared.queries import B_NCI, EQ5, materialise
from papers.shared.reproduction import Stopped

pytestmark = pytest.mark.spark

BATCHES = 2


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tpch.tables(tmp_path_factory.mktemp("tpch"), 0.01)


def prepared(home, query, z, folder):
    inputs = materialise(home, query, z)
    write_streams(inputs, cut(steady(*inputs.rows), BATCHES), folder)
    return inputs


@pytest.mark.parametrize(
    "query, z, operator, copies",
    [
        pytest.param(EQ5, 1.0, SHJ, (1, 1), id="hash"),
        pytest.param(EQ5, 1.0, STATICMID, (2, 2), id="square grid"),
        pytest.param(B_NCI, 0.0, DYNAMIC, (4, 1), id="band on an adaptive grid"),
    ],
)
def test_a_run_gives_all_results_and_reads_what_its_mapping_says(
    spark, home, tmp_path, query, z, operator, copies
):
    inputs = prepared(home, query, z, tmp_path / "files")
    run = run_on_spark(
        spark, operator, inputs, tmp_path / "files", Setting(4, 2), tmp_path / "run", count=True
    )
    assert run.results == inputs.count_results()
    assert len(run.seconds) == len(run.reads) == BATCHES
    assert run.rows_read == sum(rows * times for rows, times in zip(inputs.rows, copies, strict=True))
    assert not (tmp_path / "run").exists()


def test_a_stopped_run_ends_its_query_and_leaves_nothing(spark, home, tmp_path):
    inputs = prepared(home, EQ5, 0.0, tmp_path / "files")
    stop = Event()
    stop.set()
    with pytest.raises(Stopped):
        run_on_spark(spark, DYNAMIC, inputs, tmp_path / "files", Setting(4, 2), tmp_path / "run", stop=stop)
    assert spark.streams.active == []
    assert not (tmp_path / "run").exists()
