"""The reproduction of HYBRIDJOIN: its relation, its readings, its runs in small, what it says of the paper."""

from __future__ import annotations

import dataclasses

import numpy as np
import pyarrow as pa
import pytest

from watersmeet.reproduce.hybrid import paper
from watersmeet.reproduce.hybrid.access import fig3
from watersmeet.reproduce.hybrid.cases import FULL, QUICK
from watersmeet.reproduce.hybrid.costs import fig10a, fig11
from watersmeet.reproduce.hybrid.rates import fig10c, fig10d
from watersmeet.reproduce.hybrid.readings import Reading, summarise
from watersmeet.reproduce.hybrid.relation import Relation, make_relation, page_index, warm
from watersmeet.reproduce.hybrid.results import (
    HYBRIDJOIN,
    INLJ,
    MESHJOIN,
    Case,
    Measured,
    Prediction,
    Service,
    Slow,
    Use,
)
from watersmeet.reproduce.hybrid.stream import fig8, fig9, hurst, spread_by_scale
from watersmeet.reproduce.hybrid.tuning import fig6
from watersmeet.reproduce.hybrid.waiting import fig10b
from watersmeet.testing.sales import products

# Readings


def test_the_interval_is_students():
    # t(0.975, 4) = 2.776; the deviation of 1 to 5 is sqrt(2.5).
    found = summarise([1.0, 2.0, 3.0, 4.0, 5.0])
    assert found.mean == 3.0
    assert found.spread == pytest.approx(2.776 * np.sqrt(2.5 / 5))
    assert found.high - found.low == pytest.approx(2 * found.spread)


def test_an_interval_of_95_percent_holds_the_truth_in_95_of_100():
    draws = np.random.default_rng(1).normal(10, 3, (4000, 4))
    held = [found.low <= 10 <= found.high for found in map(summarise, draws.tolist())]
    assert np.mean(held) == pytest.approx(0.95, abs=0.012)


# The relation


@pytest.fixture(scope="module")
def relation_file(tmp_path_factory):
    return make_relation(tmp_path_factory.mktemp("relation"), 1000)


@pytest.mark.parametrize("cold", [False, True], ids=["from the cache", "from the disk"])
@pytest.mark.parametrize("page_rows", [1, 7, 250, 1000, 4000])
def test_pages_together_are_the_relation(relation_file, page_rows, cold):
    with Relation(relation_file, 1000, page_rows, cold=cold) as relation:
        index = relation.index
        pages = [relation.read(page) for page in range(len(index))]
        assert (relation.aside_s > 0) == cold
    assert [page.num_rows for page in pages] == index.rows.tolist()
    assert [page.column(0)[0] for page in pages] == list(index.first.column(0))
    assert pa.Table.from_batches(pages).equals(products(1000))


def test_a_relation_is_made_once_and_a_broken_off_one_is_not_taken_for_whole(tmp_path):
    told = []
    path = make_relation(tmp_path, 300, told.append)
    assert told == [300]
    make_relation(tmp_path, 300, told.append)
    assert told == [300]

    def break_off(done):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make_relation(tmp_path, 400, break_off)
    assert [name.name for name in tmp_path.glob("*.db")] == [path.name]
    with Relation(make_relation(tmp_path, 400), 400, 400) as relation:
        assert relation.read(0).num_rows == 400
    warm(path)


def test_an_index_of_whole_pages_and_a_rest():
    index = page_index(10, 4)
    assert index.first.column(0).to_pylist() == [1, 5, 9] and index.last.column(0).to_pylist() == [4, 8, 10]
    assert index.bytes.tolist() == [480, 480, 240]


# The stream


def test_the_flow_is_judged_by_how_its_deviation_falls():
    rng = np.random.default_rng(3)
    scales = (1, 4, 16, 64)
    even = rng.poisson(100, 100_000).astype(np.float64)
    assert hurst(scales, spread_by_scale(even, scales)) == pytest.approx(0.5, abs=0.03)
    walk = 1e6 + np.cumsum(rng.normal(size=100_000))
    assert hurst(scales, spread_by_scale(walk, scales)) == pytest.approx(1, abs=0.02)


def test_the_stream_is_bursty_and_89_to_20():
    sales, flow = fig8(QUICK), fig9(QUICK)
    assert [v.agrees for v in sales.verdicts] == [False, True]
    assert "88.9%" in sales.verdicts[0].ours and "0.89" in sales.verdicts[0].why
    assert all(v.agrees for v in flow.verdicts)


# Statements


def service(rate, page_rows=1000, answered=1500.0, stay_s=1.0, step_s=0.001, predicted=None, spread=0.0):
    return Service(
        page_rows,
        1_500_000,
        Reading(rate, spread),
        answered,
        step_s,
        stay_s,
        0.0,
        predicted or Prediction(answered, step_s),
    )


def trio(hybrid, mesh, index, **more):
    return {
        name: service(rate, **more)
        for name, rate in zip((HYBRIDJOIN, MESHJOIN, INLJ), (hybrid, mesh, index), strict=True)
    }


NOTHING = Measured({}, {}, {}, {}, {}, 0, None)


def agreed(exhibit):
    return [v.agrees for v in exhibit.verdicts]


def test_rates_by_relation_agree_if_the_first_is_well_ahead_and_the_gain_shrinks():
    def of(first, last):
        services = {Case(rows, FULL.budget_bytes): first for rows in FULL.relations}
        services[Case(FULL.relations[-1], FULL.budget_bytes)] = last
        return agreed(fig10c(dataclasses.replace(NOTHING, services=services), FULL))

    assert of(trio(300, 100, 10), trio(200, 100, 10)) == [True, True, True, True]
    # Ahead of MESHJOIN by too little, and by more in the end.
    assert of(trio(110, 100, 10), trio(150, 100, 10)) == [False, True, False, False]
    # By much, but the readings are too far apart to say so.
    assert of(trio(300, 100, 10, spread=150), trio(200, 100, 10))[:2] == [False, False]


def test_rates_by_memory_are_compared_with_the_factor_of_equation_2():
    def of(hybrid, answered=1500.0):
        services = {Case(FULL.rows, budget): trio(hybrid, 100, 10) for budget in FULL.budgets}
        for cold in (False, True):
            services[Case(FULL.rows, FULL.budget_bytes, cold)] = trio(hybrid, 100, 10, answered=answered)
        return agreed(fig10d(dataclasses.replace(NOTHING, services=services), FULL))

    assert of(200) == [True] * 6
    assert of(130) == [True, True, False, True, False, True]
    # 1.36 x 1.5M x 1000 / 2M are 1,020 rows.
    assert of(200, answered=1000) == [True, True, True, False, True, False]


def test_costs_agree_where_prediction_is_near():
    def of(exhibit, hybrid_stay, predicted_s):
        services = {
            Case(rows, FULL.budget_bytes): {
                HYBRIDJOIN: service(100, stay_s=hybrid_stay, predicted=Prediction(1500, predicted_s)),
                MESHJOIN: service(100, stay_s=0.001 * rows / 1000 / 2),
                INLJ: service(100, stay_s=0.001),
            }
            for rows in FULL.relations
        }
        return agreed(exhibit(dataclasses.replace(NOTHING, services=services), FULL))

    assert of(fig10a, 0.1, 0.001) == [True, True, True]
    assert of(fig10a, 0.3, 0.001) == [False, True, True]
    assert of(fig11, 0.1, 0.0011) == [True, True, True]
    assert of(fig11, 0.1, 0.0020) == [False, True, True]


def test_tuning_agrees_if_there_is_a_best_page_size_and_the_model_finds_it():
    def of(rates, predicted):
        pages = {
            rows: service(rate, page_rows=rows, answered=rows * 1.02, predicted=Prediction(told, 1.0))
            for rows, rate, told in zip(FULL.pages, rates, predicted, strict=True)
        }
        read_s = {rows: 1e-6 * rows for rows in FULL.pages}
        return agreed(
            fig6(dataclasses.replace(NOTHING, pages=pages, read_s=read_s, cold_read_s=read_s), FULL)
        )

    rising = [1, 2, 3, 4, 5, 6, 7, 8]
    peak = [1, 2, 3, 4, 5, 4, 3, 2]
    assert of(peak, peak) == [True, True, False, True, True]
    assert of(rising, peak) == [True, False, False, True, False]
    assert of([3, 2, 4, 5, 4, 3, 2, 1], peak)[0] is False


def test_waiting_agrees_if_mesh_waits_longest_and_index_falls_behind():
    def of(hybrid, mesh, index, collect=1.0):
        slow = {
            rate: {
                HYBRIDJOIN: Slow(hybrid, 0.0),
                MESHJOIN: Slow(mesh, collect * 500 / rate),
                INLJ: Slow(index * rate / FULL.rates[0], 0.0),
            }
            for rate in FULL.rates
        }
        return agreed(fig10b(dataclasses.replace(NOTHING, slow=slow, slow_input=500), FULL))

    assert of(0.003, 10, 0.001) == [True, True, True, True]
    assert of(0.003, 0.002, 0.0001, collect=2.0) == [False, False, True, False]
    assert of(0.003, 10, 0.004)[2] is False


def test_use_of_pages_agrees_if_the_end_is_asked_for_and_read_less():
    def of(rows, hybrid, mesh, unused=0.0):
        use = Use(
            (0, 100, 8000),
            rows,
            (900.0, 20.0, 1.0),
            {HYBRIDJOIN: hybrid, MESHJOIN: mesh},
            {HYBRIDJOIN: unused, MESHJOIN: 0.2},
        )
        return agreed(fig3(dataclasses.replace(NOTHING, use=use), FULL))

    assert of((1000, 20, 1), (0.5, 0.4, 0.3), (0.6, 0.6, 0.6)) == [True] * 4
    assert of((1000, 20, 30), (0.9, 0.4, 0.3), (0.2, 0.6, 0.6), unused=0.1) == [False] * 4


@pytest.mark.parametrize("size", [FULL, QUICK], ids=["full", "quick"])
def test_every_figure_has_the_points_that_its_statements_need(size):
    assert size.rows in size.relations and size.budget_bytes in size.budgets
    assert size.rates[0] == paper.ARRIVAL_RATES[0] < paper.SLOW_RATE
    assert paper.ARRIVAL_RATES[1] in size.rates and size.rates[-1] > paper.ARRIVAL_RATES[1]
    # The largest page leaves room for rows.
    assert size.pages[-1] * paper.ROW_BYTES < size.budget_bytes
    assert size.readings >= 2
