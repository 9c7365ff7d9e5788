"""What a hub keeps is found again: after a restart with streams and columns in another order, and only what queries count."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from random import Random
from unittest import mock

import pyarrow as pa
import pytest

from tests.model import test_hub_lives as lives
from tests.model.test_hub_kept import CHAIN, STREAMS, answers_in, kept
from watersmeet.engine import hub_desk
from watersmeet.hubs.catalogue import ADD
from watersmeet.hubs.keep import undecided
from watersmeet.hubs.keep_choice import KeptInputs
from watersmeet.local.hub import LocalHub

SELECT = "SELECT R.k AS rk, R.x AS rx, S.k AS sk, S.x AS sx, P.k AS pk, P.x AS px FROM R, S, P WHERE "
# Two equalities lead out of S and P to R: by one of them combinations are stored, and the other one is checked.
TRIANGLE = SELECT + "R.k = S.k AND R.x = P.x AND S.x = P.k"
FORK = SELECT + "R.k = S.k AND R.k = P.k AND S.x = P.x"


@contextlib.contextmanager
def keeping(inputs: tuple[int, ...], chosen_in: int | None = None) -> Iterator[None]:
    """All undecided templates keep these inputs, or those that come up to a batch do from it on."""

    def choices(catalogue, streams, batch, runs):
        if streams.keep == "never" or (chosen_in is not None and batch != chosen_in):
            return {}
        return {one: KeptInputs(inputs, 1.0, 2.0) for one in undecided(catalogue).tolist()}

    with mock.patch.object(hub_desk, "choices_of", choices):
        yield


@pytest.mark.parametrize("query", [TRIANGLE, FORK])
@pytest.mark.parametrize(
    "streams",
    [
        pytest.param({**STREAMS, "R": pa.schema([*lives.R][::-1])}, id="columns"),
        pytest.param(dict.fromkeys("PSR", lives.R), id="streams"),
    ],
)
def test_what_was_kept_is_found_after_a_restart_in_another_order(tmp_path, query, streams):
    with keeping((1, 2)):
        hubs = [
            LocalHub(STREAMS, str(tmp_path / keep), {"q": query}, keep=keep) for keep in ("always", "never")
        ]
        random, found = Random(1), 0
        for number in range(8):
            if number == 4:
                hubs = [lives.restarted(hub, schemas=streams) for hub in hubs]
            rows = {
                name: pa.table({one: [random.randrange(3) for _ in range(4)] for one in "kx"})
                for name in STREAMS
            }
            given = {name: rows[name].select(hubs[0].schemas[name].names) for name in STREAMS}
            with_kept, without = (answers_in(hub.batch(at=lives.at(number), **given)) for hub in hubs)
            assert with_kept == without
            found += without.total()
    assert found and kept(hubs[0]) and not kept(hubs[1])


def test_only_combinations_that_a_query_counts_are_kept(tmp_path):
    row, none = (
        pa.table({"k": [1] * 5, "x": [1] * 5}),
        pa.table({"k": pa.array([], pa.int64()), "x": pa.array([], pa.int64())}),
    )
    with keeping((0, 1), chosen_in=6):
        hub = LocalHub(
            STREAMS,
            str(tmp_path),
            {"old": CHAIN.replace("R.x FROM", "R.k FROM") + " AND R.k > 5"},
            keep="always",
        )
        for number in range(8):
            more = [(ADD, "late", CHAIN)] if number == 4 else []
            hub.batch(lives.commands(*more), lives.at(number), R=row, S=row, P=none)
        hub.batch(lives.commands(), lives.at(8), R=none, S=none, P=none)
    # Three batches of five rows each behind the command.
    assert kept(hub) == 15 * 15
