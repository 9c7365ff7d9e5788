"""The reproduction of Streaming HyperCube on Spark: every operator gives all results; the whole way to the exhibits."""

from __future__ import annotations

from threading import Event

import pytest

from papers.hypercube.cases import Size, similar_inputs, zipf_inputs
from papers.hypercube.figures import Hypercube
from papers.hypercube.operators import THREE
from papers.shared.arrival import cut, steady, write_streams
from papers.shared.reproduction import Session, Stopped
from papers.shared.timed import run_timed

pytestmark = pytest.mark.spark

TINY = Size(
    alphas={0.0: 800, 1.0: 800},
    inputs=(800,),
    scales={1.0: 0.01},
    radii={0.08: 200},
    batches=1,
    rounds=1,
    once=frozenset(),
    spark_batches=1,
    spark_results=10_000,
    spark_rows=800,
    one_key_rows=(10, 200),
    one_key_rounds=1,
)


class Steps:
    def __init__(self):
        self.texts = []

    def step(self, text):
        self.texts.append(text)

    def batch(self, done, of):
        assert 0 <= done <= of


def test_every_operator_gives_all_results(spark, tmp_path):
    inputs = zipf_inputs(2000, 1.5)
    write_streams(inputs, cut(steady(*inputs.rows), 2), tmp_path / "files")
    for operator in THREE:
        run = run_timed(
            spark, inputs, tmp_path / "files", tmp_path / operator.name, operator.arguments(2), count=True
        )
        assert run.results == inputs.count_results(), operator
        assert len(run.seconds) == 2 and run.total_s == sum(run.seconds) > 0


def test_exhibits_are_made_in_as_many_steps_as_were_announced(spark, tmp_path, monkeypatch):
    # Inputs this small take as long as others: on a busy machine the difference may be below zero.
    monkeypatch.setattr("papers.hypercube.measure.handing_cost", lambda joins: 1e-7)
    reproduction, steps, armed = Hypercube(TINY), Steps(), []
    (exhibit,) = reproduction.run(
        ["fig7"], Session(tmp_path / "data", tmp_path, steps, Event(), lambda: armed.append(True))
    )
    assert exhibit.name == "fig7"
    assert len(steps.texts) == reproduction.count_steps(["fig7"])
    assert armed == [True]
    results = similar_inputs(TINY.radii[0.08], 0.08).count_results()
    assert exhibit.tables[0].rows[0][:3] == ["0.08", "800", f"{results:,}"]
    assert not (tmp_path / "run").exists()


def test_a_stop_ends_it_without_exhibits(spark, tmp_path, monkeypatch):
    # The first query ends before anybody looks: the stop counts all the same.
    monkeypatch.setattr("papers.shared.timed._POLL_S", 60)
    stop = Event()
    with pytest.raises(Stopped):
        Hypercube(TINY).run(["fig7"], Session(tmp_path / "data", tmp_path, Steps(), stop, stop.set))
    assert spark.streams.active == []
