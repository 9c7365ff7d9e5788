"""The disk that merged runs take while a checkpoint may be rolled back to them, over whole lives of a log of facts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from watersmeet.model.facts import KEY_SPACE, Merge, Receipt, Run
from watersmeet.model.limits import DEFAULT_LIMITS, Limits
from watersmeet.plan.merges import accept_receipts, apply_finished, plan_assignments, plan_merges
from watersmeet.plan.room import estimate_left_bytes, estimate_room_bytes, oldest_that_fit

ROW_BYTES = 200
RETAINED = 100


def run(name: str, rows: int, batch: int = 0, group: str | None = None) -> Run:
    return Run("l", name, group or name, batch, rows, rows * ROW_BYTES, 0, KEY_SPACE - 1, "")


def merged(tier: int, rows: int, batch: int, number: int = 0) -> list[Run]:
    name = f"l-{batch:010d}-{tier}-{number:016x}"
    return [run(f"{name}.0", rows, batch, group=name)]


def lived(
    batches: int, partitions: int, rows: int, limits: Limits, tasks: int = 2
) -> tuple[list[float], list[int]]:
    """Bytes on disk for each live byte after each batch, and the sequences that a look-up visits then."""
    live: tuple[Run, ...] = ()
    pending: tuple[Merge, ...] = ()
    # When each file was last named, and its size.
    last_named: dict[str, tuple[int, int]] = {}
    shares, sequences = [], []
    for batch in range(batches):
        fresh = tuple(run(f"{batch}-{number}", rows // partitions, batch) for number in range(partitions))
        pending = (
            *pending,
            *plan_merges(live, pending, tasks, batch, limits=limits, retained_batches=RETAINED),
        )
        receipts = []
        by_id = {merge.id: merge for merge in pending}
        for job in plan_assignments(pending, live, rows, tasks, limits=limits):
            merge = by_id[job.merge]
            share = merge.rows // len(merge.parts) + (merge.rows % len(merge.parts) if not job.part else 0)
            output = run(f"{job.merge}.{job.part}", share, batch, group=job.merge)
            receipts.append(Receipt(job.merge, job.part, (output,)))
        pending = accept_receipts(pending, receipts, {"l": set()})
        outputs = [one for merge in pending for part in merge.parts for one in part.output or ()]
        for one in (*live, *fresh, *outputs):
            last_named[one.path] = (batch, one.bytes)
        live, pending, _ = apply_finished((*live, *fresh), pending)
        # The clean-up comes every few batches.
        cleaned = batch // limits.clean_every_batches * limits.clean_every_batches
        last_named = {path: seen for path, seen in last_named.items() if seen[0] >= cleaned - RETAINED}
        on_disk = sum(size for _, size in last_named.values())
        shares.append(on_disk / sum(one.bytes for one in live))
        sequences.append(len({one.group for one in live}))
    return shares, sequences


@pytest.mark.parametrize(("partitions", "rows"), [(1, 2_000), (1, 100_000), (3, 9_000), (5, 100_000)])
def test_the_disk_holds_at_most_two_and_a_half_times_the_live_runs(partitions, rows):
    limits = replace(DEFAULT_LIMITS, least_scarce_bytes=20 * rows * ROW_BYTES)
    shares, sequences = lived(500, partitions, rows, limits)
    # At first the input is small: then a tier is merged as soon as it is full.
    assert max(shares[30:]) <= 2.5
    # The price: look-ups visit some more sequences, never without bound.
    assert max(sequences) <= 2 * DEFAULT_LIMITS.most_tier_sequences


@pytest.mark.parametrize("partitions", [8, 24])
def test_many_partitions_take_somewhat_more_and_not_without_bound(partitions):
    """A tier is merged in any case once it has too many sequences, which eight partitions fill within six batches."""
    limits = replace(DEFAULT_LIMITS, least_scarce_bytes=20 * 9_000 * ROW_BYTES)
    shares, sequences = lived(300, partitions, 9_000, limits)
    assert 2.5 < max(shares[30:]) <= 3.0
    assert max(sequences) <= 2 * DEFAULT_LIMITS.most_tier_sequences + partitions


def test_without_the_bound_the_rows_lie_there_three_times():
    """What the bound is for: the life above does notice."""
    shares, _ = lived(130, 1, 9_000, replace(DEFAULT_LIMITS, retained_share=100.0))
    assert max(shares) > 2.8


def test_an_input_that_is_small_is_merged_as_soon_as_a_tier_is_full():
    groups = [[run(f"a{number}", 1_000)] for number in range(8)]
    assert estimate_room_bytes(groups, [], 9, RETAINED, DEFAULT_LIMITS) == float("inf")


@pytest.mark.parametrize(
    ("batch", "left_rows"),
    [
        pytest.param(64, 64_000 + 64_000, id="both tiers below are retained"),
        # Of the first tier only what arrived within the 116 batches that are kept.
        pytest.param(163, 64_000 + 64_000 * 116 // 164, id="the lower one in part"),
        pytest.param(180, 0, id="all of it is gone"),
    ],
)
def test_what_a_merge_left_behind_is_counted_while_it_is_retained(batch, left_rows):
    groups = [merged(1, 63_000, 63), [run("fresh", 1_000, batch)]]
    kept = RETAINED + DEFAULT_LIMITS.clean_every_batches
    found = estimate_left_bytes(groups, batch, kept, DEFAULT_LIMITS) / ROW_BYTES
    assert found == pytest.approx(left_rows, rel=0.05)


def test_the_oldest_sequences_are_merged_if_not_all_fit():
    groups = [[run(f"a{number}", 1_000, batch=20 - number)] for number in range(12)]
    room = 9.5 * 1_000 * ROW_BYTES
    chosen = oldest_that_fit(groups, room, DEFAULT_LIMITS)
    assert [group[0].batch for group in chosen] == list(range(9, 18))
    assert oldest_that_fit(groups, 7.5 * 1_000 * ROW_BYTES, DEFAULT_LIMITS) == []


def test_a_tier_with_too_many_sequences_is_merged_in_any_case():
    groups = [[run(f"a{number}", 1_000)] for number in range(DEFAULT_LIMITS.most_tier_sequences)]
    assert len(oldest_that_fit(groups, -1.0, DEFAULT_LIMITS)) == len(groups)
