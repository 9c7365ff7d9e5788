"""What a row with strings costs: its phases."""

from __future__ import annotations

import pyarrow as pa

from bench.wide import CALLS, REST, batches_of, measure


def test_every_phase_is_measured_and_nothing_stays_noted():
    from watersmeet.engine import ingest

    before = ingest.take_rows
    batches = batches_of(True, 1_000, 10)
    spent, rows, results = measure(batches, 2)
    # Bids and auctions of 50 events are 46 and 3.
    assert rows == 8 * 20 * 49
    # A bid has one auction, but for those on auctions that come after the last batch.
    assert 0.9 * 8 * 20 * 46 < results <= 10 * 20 * 46
    assert {label for label, _, _ in CALLS} | {"look up keys", REST} == spent.keys()
    assert ingest.take_rows is before


def test_rows_of_numbers_are_those_with_texts_without_the_texts():
    (wide,), (narrow,) = (batches_of(texts, 500, 1) for texts in (True, False))
    for name, rows in narrow.items():
        assert rows.equals(wide[name].select(rows.schema.names))
        assert not any(pa.types.is_string(field.type) for field in rows.schema)
    assert wide["b"].num_columns == 7
