"""The statements of the HYBRIDJOIN paper: when the figures are said to agree."""

from __future__ import annotations

import dataclasses

import pytest

from papers.hybrid import paper
from papers.hybrid.access import fig3
from papers.hybrid.cases import FULL, QUICK
from papers.hybrid.costs import fig10a, fig11
from papers.hybrid.rates import fig10c, fig10d
from papers.hybrid.results import (
    ALGORITHMS,
    HYBRIDJOIN,
    INLJ,
    MESHJOIN,
    Case,
    Measured,
    Prediction,
    Service,
    Slow,
    Use,
    is_near_k,
    ratio,
)
from papers.hybrid.tuning import fig6
from papers.hybrid.waiting import fig10b

NOTHING = Measured({}, {}, {}, {}, {}, 0, None)


def service(rate, page_rows=1000, answered=1020.0, stay_s=1.0, step_s=0.001, predicted=None, noise=(1, 1, 1)):
    """1,020 rows are 1.36 x 1.5M x 1000 / 2M: the paper's k. `noise` are factors of three readings."""
    return Service(
        page_rows,
        held_rows=1_500_000,
        rates=[rate * part for part in noise],
        answered=answered,
        step_s=step_s,
        read_s=step_s / 2,
        stay_s=stay_s,
        unused=0.0,
        predicted=predicted or Prediction(answered, step_s),
        equation_gain=1.3,
    )


def trio(hybrid, mesh, index, **more):
    return {
        name: service(rate, **more)
        for name, rate in zip((HYBRIDJOIN, MESHJOIN, INLJ), (hybrid, mesh, index), strict=True)
    }


def agreed(exhibit):
    return [v.agrees for v in exhibit.verdicts]


def controls(exhibit):
    """For each statement whether its controls agree too."""
    return [[control.agrees for control in v.controls] for v in exhibit.verdicts]


def by_relation(first, last):
    services = {Case(rows, FULL.budget_bytes): first for rows in FULL.relations}
    services[Case(FULL.relations[-1], FULL.budget_bytes)] = last
    return fig10c(dataclasses.replace(NOTHING, services=services), FULL)


def test_rates_by_relation_agree_if_the_first_is_well_ahead_and_the_gain_shrinks():
    found = by_relation(trio(300, 100, 10), trio(200, 100, 10))
    assert agreed(found)[:4] == [True] * 4
    # MESHJOIN is ahead of INLJ too, by the same at either end; INLJ is never ahead of MESHJOIN.
    assert controls(found)[:4] == [[False], [True], [False], [False]]
    # Ahead of MESHJOIN by too little, and by more in the end.
    assert agreed(by_relation(trio(110, 100, 10), trio(150, 100, 10)))[:4] == [False, True, False, False]


def test_what_slows_all_algorithms_down_together_leaves_their_ratio_as_it_is():
    restless = (0.3, 1, 1.7)
    together = trio(130, 100, 10, noise=restless)
    assert together[HYBRIDJOIN].rate.low < together[MESHJOIN].rate.high
    assert ratio(together, HYBRIDJOIN, MESHJOIN).text == "1.30 (1.30 to 1.30)"
    assert agreed(by_relation(together, trio(120, 100, 10)))[0] is True
    # Noise of one of them alone is in the interval.
    alone = together | {MESHJOIN: service(100, noise=(1, 1, 1))}
    assert agreed(by_relation(alone, trio(120, 100, 10)))[0] is False
    assert "the interval holds 1" in by_relation(alone, trio(120, 100, 10)).verdicts[0].why


def test_rates_by_memory_are_compared_with_the_margins_of_the_equations():
    def of(hybrid, noise=(1, 1, 1)):
        services = {Case(FULL.rows, budget): trio(hybrid, 100, 0.1) for budget in FULL.budgets}
        for cold in (False, True):
            services[Case(FULL.rows, FULL.budget_bytes, cold)] = trio(hybrid, 100, 0.1) | {
                HYBRIDJOIN: service(hybrid, noise=noise)
            }
        return agreed(fig10d(dataclasses.replace(NOTHING, services=services), FULL))

    assert of(140) == [True] * 5
    # Ahead, but by less than 1.3 times MESHJOIN; unless the readings are too far apart to say so.
    assert of(125) == [True, True, True, False, False]
    assert of(125, noise=(0.98, 1, 1.02))[3:] == [True, True]
    # So far apart that they say nothing.
    assert of(125, noise=(0.8, 1, 1.2))[3:] == [False, False]
    assert of(90)[0] is False


@pytest.mark.parametrize("k, near", [(1.36, True), (1.25, True), (1.49, True), (1.22, False), (1.50, False)])
def test_one_criterion_of_k_holds_for_every_figure_that_shows_it(k, near):
    assert is_near_k(k) is near
    answered = k * 1_500_000 * 1000 / FULL.rows
    services = {Case(FULL.rows, budget): trio(140, 100, 0.1, answered=answered) for budget in FULL.budgets}
    services |= {
        Case(FULL.rows, FULL.budget_bytes, cold): trio(140, 100, 0.1, answered=answered)
        for cold in (False, True)
    }
    by_rows = {rows: trio(140, 100, 0.1, answered=k * 1_500_000 * 1000 / rows) for rows in FULL.relations}
    pages = {
        rows: dict.fromkeys(ALGORITHMS, service(rows, page_rows=rows, answered=answered * rows / 1000))
        for rows in FULL.pages
    }
    read_s = dict.fromkeys(FULL.pages, 1e-3)
    found = [
        fig10d(dataclasses.replace(NOTHING, services=services), FULL),
        fig10c(
            dataclasses.replace(
                NOTHING, services={Case(rows, FULL.budget_bytes): by for rows, by in by_rows.items()}
            ),
            FULL,
        ),
        fig6(dataclasses.replace(NOTHING, pages=pages, read_s=read_s, cold_read_s=read_s), FULL),
    ]
    told = [v for exhibit in found for v in exhibit.verdicts if v.paper.startswith("equation 2")]
    assert [v.agrees for v in told] == [near] * 3
    # MESHJOIN is asked by the same criterion; here it has the same rows for a read.
    assert [control.agrees for v in told for control in v.controls] == [near] * 3


def test_costs_agree_where_prediction_is_near():
    def of(exhibit, hybrid_stay, predicted_s):
        services = {
            Case(rows, FULL.budget_bytes): {
                HYBRIDJOIN: service(100, stay_s=hybrid_stay, predicted=Prediction(1020, predicted_s)),
                MESHJOIN: service(100, stay_s=0.001 * rows / 1000 / 2),
                INLJ: service(100, stay_s=0.001),
            }
            for rows in FULL.relations
        }
        return agreed(exhibit(dataclasses.replace(NOTHING, services=services), FULL))

    # MESHJOIN's rows match after half of its cycle, 0.25 s for the smallest relation, and leave after all of it.
    assert of(fig10a, 0.1, 0.001) == [True, True, True, True]
    assert of(fig10a, 0.3, 0.001) == [False, True, True, True]
    assert of(fig10a, 0.45, 0.001) == [False, False, True, True]
    assert of(fig11, 0.1, 0.0011) == [True, True, True]
    assert of(fig11, 0.1, 0.0020) == [False, True, True]


def tuning(rates, predicted, read_s=None, mesh=(1, 1, 1, 1, 1)):
    pages = {
        rows: {
            HYBRIDJOIN: service(rate, page_rows=rows, answered=rows * 1.02, predicted=Prediction(told, 1.0)),
            MESHJOIN: service(other, page_rows=rows),
            INLJ: service(1e6 / rows, page_rows=rows, answered=1),
        }
        for rows, rate, told, other in zip(FULL.pages, rates, predicted, mesh, strict=True)
    }
    read_s = read_s or {rows: 1e-6 * rows for rows in FULL.pages}
    return fig6(dataclasses.replace(NOTHING, pages=pages, read_s=read_s, cold_read_s=read_s), FULL)


def test_tuning_agrees_if_there_is_a_best_page_size_and_the_model_finds_it():
    rising = [1, 2, 3, 4, 5]
    peak = [1, 2, 4, 5, 3]
    # Each page answers as many rows for what it costs to read: something else is slower.
    assert agreed(tuning(peak, peak)) == [True, True, False, True, True]
    assert agreed(tuning(rising, peak)) == [True, False, False, True, False]
    assert agreed(tuning([3, 2, 4, 5, 4], peak))[0] is False
    # A row for each read, however large: INLJ only falls. MESHJOIN does what its rates say.
    assert controls(tuning(peak, peak))[:2] == [[False, False], [False, True]]
    assert controls(tuning(peak, peak, mesh=[1, 2, 3, 4, 2]))[:2] == [[True, False], [True, True]]
    # 4 of 5 is not near the best; 4.6 would be, without any model.
    assert controls(tuning(peak, peak))[-1] == [False] * 4
    assert controls(tuning([1, 2, 4.6, 5, 3], peak))[-1] == [False, False, True, False]


def test_reads_are_the_reason_if_their_part_of_a_row_answered_grows_by_more_than_the_rest():
    """From 1.63 to 3.88 us for a row in all, of which reading has 0.76 and 2.37: the figures of a full run."""
    rates = [1e5, 2e5, 1e6 / 1.63, 4e5, 1e6 / 3.88]
    read_s = {rows: us * rows * 1.02e-6 for rows, us in zip(FULL.pages, (1, 1, 0.76, 1, 2.37), strict=True)}
    reason = tuning(rates, rates, read_s).verdicts[2]
    assert reason.agrees is True and "0.76 and 2.37 us for each row that is answered" in reason.ours
    assert [control.agrees for control in reason.controls] == [False]
    dearer = tuning([*rates[:4], 1e6 / 8.0], rates, read_s).verdicts[2]
    assert dearer.agrees is False and [control.agrees for control in dearer.controls] == [True]


def test_waiting_agrees_if_mesh_waits_longest_and_index_falls_behind():
    def of(hybrid, mesh, index, collect=1.0, seeking=1.0):
        slow = {
            (seek, rate): {
                HYBRIDJOIN: Slow(hybrid, 0.0),
                MESHJOIN: Slow(mesh, collect * 500 / rate),
                INLJ: Slow(index * rate / FULL.rates[0] * (seeking if seek else 1), 0.0),
            }
            for seek in (0.0, *FULL.seeks)
            for rate in FULL.rates
        }
        return fig10b(dataclasses.replace(NOTHING, slow=slow, slow_input=500), FULL)

    assert agreed(of(0.0015, 10, 0.001)) == [True] * 5
    # INLJ is slower than HYBRIDJOIN only from 8,000 rows/s on.
    assert agreed(of(0.03, 10, 0.001)) == [True, True, True, False, True]
    assert agreed(of(0.003, 0.002, 0.0001, collect=2.0)) == [False, False, True, False, True]
    assert agreed(of(0.003, 10, 0.004))[2] is False
    # On a disk that seeks it is slower from 500 rows/s on, and that is what is judged.
    found = of(0.03, 10, 0.001, seeking=10)
    assert agreed(found) == [True] * 5
    assert [c.agrees for v in found.verdicts[2:4] for c in v.controls] == [True, False]


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
    # Equal but for the last digit is equal.
    equal = (0.6, 0.6, 0.6 - 1e-9)
    assert of((1000, 20, 1), equal, equal)[1:3] == [True, False]
    # A fifth between the pages is no equal use.
    assert of((1000, 20, 1), (0.5, 0.4, 0.3), (0.6, 0.6, 0.5))[1] is False
    assert of((1000, 20, 30), (0.9, 0.4, 0.3), (0.2, 0.6, 0.6), unused=0.1) == [False] * 4


@pytest.mark.parametrize("size", [FULL, QUICK], ids=["full", "quick"])
def test_every_figure_has_the_points_that_its_statements_need(size):
    assert size.rows in size.relations and size.budget_bytes in size.budgets
    assert size.rates[0] == paper.ARRIVAL_RATES[0] < paper.SLOW_RATE
    assert paper.ARRIVAL_RATES[1] in size.rates and size.rates[-1] > paper.ARRIVAL_RATES[1]
    # The largest page leaves room for rows.
    assert size.pages[-1] * paper.ROW_BYTES < size.budget_bytes
    assert size.readings >= 2
