"""Which pages are read, who reads them, and which stay in memory."""

from __future__ import annotations

import itertools
import random
from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from watersmeet.model.facts import KEY_SPACE
from watersmeet.model.pages import PAGE_SHIFT
from watersmeet.schemes.table import buffer as buffer_module
from watersmeet.schemes.table.buffer import PageBuffer
from watersmeet.schemes.table.pages import PageCounts, PagePolicy, choose_pages, count_pages, share_pages


@st.composite
def runs(draw: st.DrawFn) -> list[tuple[list[int], int]]:
    """Pages of waiting rows and when they came; from a seed, since Hypothesis would repeat few of them."""
    rng = random.Random(draw(st.integers(0, 2**32)))
    sizes = [rng.randint(0, 6) for _ in range(rng.randint(0, 7))]
    return [([int(10 ** rng.random()) for _ in range(size)], rng.randint(0, 50)) for size in sizes]


@st.composite
def policies(draw: st.DrawFn) -> PagePolicy:
    """Mostly such that some rows are due and some are not."""
    rng = random.Random(draw(st.integers(0, 2**32)))
    worth, budget = (
        rng.choice([None, rng.randint(2, 6)]),
        rng.choice([None, *(rng.randint(0, 12) for _ in "abc")]),
    )
    return PagePolicy(rng.choice([30, 51]), worth, budget)


def counted(drawn) -> PageCounts:
    return count_pages((np.array(sorted(pages), np.int64), at_ms) for pages, at_ms in drawn)


@given(runs())
def test_counts_are_those_of_the_rows(drawn):
    counts = counted(drawn)
    rows = Counter(page for pages, _ in drawn for page in pages)
    assert dict(zip(counts.pages.tolist(), counts.rows.tolist(), strict=True)) == rows
    assert counts.pages.tolist() == sorted(rows)
    for page, oldest in zip(counts.pages.tolist(), counts.oldest.tolist(), strict=True):
        assert oldest == min(at_ms for pages, at_ms in drawn if page in pages)


@given(runs(), policies(), st.sampled_from([None, 8]))
def test_pages_are_read_for_a_reason_and_only_then(drawn, policy, table_pages):
    counts = counted(drawn)
    delay, worth, budget = policy.max_delay_ms, policy.worth_rows, policy.budget_rows
    chosen = choose_pages(counts, policy, now_ms=50, table_pages=table_pages).tolist()
    assert chosen == sorted(set(chosen))
    rows, oldest = (
        dict(zip(counts.pages.tolist(), column.tolist(), strict=True))
        for column in (counts.rows, counts.oldest)
    )
    expected = {
        page
        for page in rows
        if oldest[page] <= 50 - delay
        or (table_pages is not None and page >= table_pages)
        or (worth is not None and rows[page] >= worth)
    }
    for page in sorted(rows, key=lambda page: (oldest[page], -rows[page], page)):
        if budget is not None and sum(rows[other] for other in rows if other not in expected) > budget:
            expected.add(page)
    assert chosen == sorted(expected)


@given(runs())
def test_without_a_delay_all_pages_are_read(drawn):
    counts = counted(drawn)
    for policy in (PagePolicy(), PagePolicy(0, worth_rows=5, budget_rows=5)):
        assert choose_pages(counts, policy, now_ms=0).tolist() == counts.pages.tolist()
    late = PagePolicy(10**9)
    assert choose_pages(counts, late, now_ms=60).tolist() == []
    assert choose_pages(counts, late, now_ms=60, all_due=True).tolist() == counts.pages.tolist()


@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(1, 500), st.integers(1, 4)), max_size=15),
    st.integers(1, 9),
    st.integers(0, 60),
    st.integers(0, 2**32),
)
def test_tasks_share_all_rows_about_evenly(drawn, tasks, read_rows, seed):
    """Rows of few keys for each page: they are cut within a key if it must be."""
    rng = np.random.default_rng(seed)
    rows = {page: (count, keys) for page, count, keys in drawn}
    orders = {
        page: np.sort(
            (np.uint64(page) << np.uint64(PAGE_SHIFT))
            | (rng.integers(0, keys, count).astype(np.uint64) * np.uint64(77_777) << np.uint64(8))
            | rng.integers(0, 256, count).astype(np.uint64)
        )
        for page, (count, keys) in rows.items()
    }
    every = np.sort(np.concatenate([np.empty(0, np.uint64), *orders.values()]))
    counts = count_pages([((every >> np.uint64(PAGE_SHIFT)).astype(np.int64), 0)])
    ranges = share_pages(counts, tasks, read_rows=read_rows, orders_of=lambda page: orders[page])
    assert len(ranges) == tasks
    assert (ranges[0].low, ranges[-1].high) == (0, KEY_SPACE)
    assert all(a.high == b.low and a.low <= a.high for a, b in itertools.pairwise(ranges))
    work = [
        sum(
            read_rows * len(inside) / len(orders[page]) + len(inside)
            for page in rows
            for inside in [orders[page][_between(orders[page], range_)]]
        )
        for range_ in ranges
    ]
    total = sum(count for count, _ in rows.values()) + read_rows * len(rows)
    assert round(sum(work)) == total
    # A border may be off by an eighth of a share at both ends, or by the rows that share an order key.
    same = max((np.unique(page, return_counts=True)[1].max() for page in orders.values()), default=0)
    heaviest = max(((count + read_rows) / count for count, _ in rows.values()), default=0.0)
    assert max(work) <= total / tasks * 1.25 + 2 * (same + 1) * heaviest


def _between(orders, range_):
    return [place for place, key in enumerate(orders.tolist()) if range_.low <= key < range_.high]


def test_a_page_that_holds_half_of_all_rows_is_cut_and_others_are_not():
    counts = PageCounts(np.array([0, 1, 2, 3]), np.array([6_000, 2_000, 2_000, 2_000]), np.zeros(4, np.int64))
    bounds = [range_.low / 2**PAGE_SHIFT for range_ in share_pages(counts, 6, read_rows=0)]
    assert [round(bound, 2) for bound in bounds] == [0, 0.33, 0.67, 1, 2, 3]


requests = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 9)), max_size=120)


@given(st.integers(0, 40), requests, st.integers(1, 40))
def test_a_buffer_gives_back_what_was_put_in_and_keeps_within_its_budget(budget, drawn, sample):
    size = {number: 1 + number % 5 * 3 for number in range(13)}
    kept: PageBuffer[tuple[int, int]] = PageBuffer(budget)
    newest: dict[int, tuple[int, int]] = {}
    hits = 0
    before = buffer_module._MIN_SAMPLE, buffer_module._SAMPLE_FACTOR
    buffer_module._MIN_SAMPLE, buffer_module._SAMPLE_FACTOR = sample, 1
    try:
        for time, (number, action) in enumerate(drawn):
            if action == 0:
                gone = kept.drop_older(time - 5)
                assert gone <= 13
                newest = {other: page for other, page in newest.items() if page[1] >= time - 5}
                continue
            found = kept.get(number)
            if found is None:
                if kept.put(number, (number, time), bytes=size[number], read_at=time):
                    newest[number] = (number, time)
            else:
                hits += 1
                assert found == newest[number]
            assert kept.stats.bytes <= budget
            held = [other for other in range(13) if other in kept._held]
            assert kept.stats.bytes == sum(size[other] for other in held)
            assert kept.stats.pages == len(held)
    finally:
        buffer_module._MIN_SAMPLE, buffer_module._SAMPLE_FACTOR = before
    assert kept.stats.hits == hits
    kept.clear()
    assert kept.stats.bytes == kept.stats.pages == 0


def hit_rate(requested: list[int], budget: int) -> float:
    kept: PageBuffer[int] = PageBuffer(budget)
    for number in requested:
        if kept.get(number) is None:
            kept.put(number, number, bytes=1)
    return kept.stats.hits / len(requested)


def zipf(count: int, most: int, seed: int) -> np.ndarray:
    return np.floor(np.exp(np.random.default_rng(seed).random(count) * np.log(most))).astype(np.int64)


def test_a_buffer_under_zipf_is_close_to_the_best_fixed_choice():
    best = np.log(101) / np.log(1_000)
    assert best - 0.04 < hit_rate(zipf(20_000, 1_000, 0).tolist(), 100) <= best + 0.01


def test_a_buffer_hits_its_part_of_pages_that_are_asked_for_in_turn():
    """The newest pages would be no help: each leaves just before its turn. It keeps those that were there first,
    also if their turn comes after the others'.
    """
    turns = 19 * list(range(400))
    assert hit_rate([*range(400), *turns], 100) == 0.25 * 19 / 20
    assert hit_rate([*reversed(range(400)), *turns], 100) == 0.25 * 19 / 20


def test_a_page_that_left_and_came_back_makes_room_only_once():
    kept: PageBuffer[str] = PageBuffer(10)
    for read_at in (1, 2):
        assert kept.put(7, "seven", bytes=5, read_at=read_at)
        assert kept.drop_older(read_at + 1) == 1
    assert kept.put(7, "seven", bytes=5, read_at=9)
    assert kept.put(8, "eight", bytes=5, read_at=9)
    for _ in range(5):
        kept.get(9)
    assert kept.put(9, "nine", bytes=10)
    assert (kept.stats.bytes, kept.stats.pages, kept.stats.evicted) == (10, 1, 2)


def test_a_buffer_follows_a_change():
    drawn = zipf(40_000, 1_000, 1)
    late = (999 - drawn[20_000:]).tolist()
    kept: PageBuffer[int] = PageBuffer(100)
    for number in [*drawn[:20_000].tolist(), *late]:
        if kept.get(number) is None:
            kept.put(number, number, bytes=1)
    before = kept.stats.hits
    for number in late:
        if kept.get(number) is None:
            kept.put(number, number, bytes=1)
    assert (kept.stats.hits - before) / len(late) > np.log(101) / np.log(1_000) - 0.06
