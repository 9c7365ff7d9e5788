"""Random lives of joins of two to six inputs of all types on the local driver, against DuckDB over all rows at once.

Batches crash and are replayed by zombies, the query goes back by some batches, and its number of tasks changes at
restarts, as does the strategy where all inputs share a key. Terms get orders by their samples, or any that are drawn,
possible or not, and are dealt at once or on the way. Tasks have all keys, or any shares of them.
"""

from __future__ import annotations

import contextlib
import random
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any
from unittest import mock

import pyarrow as pa
from hypothesis import given, note, reject, settings

from tests.life import LIVES, TINY, difference, multiset, restarted, run_batch, run_through, start
from tests.model.many_scripts import EDGE, NAMES, WINDOWS, Script, batches_of, expected, schema_of, scripts
from watersmeet.errors import PredicateError
from watersmeet.local.join import LocalJoin
from watersmeet.model.limits import Limits
from watersmeet.schemes.delta import scheme as delta
from watersmeet.schemes.delta.orders import TermOrder
from watersmeet.schemes.delta.shares import KeyShares, divisors
from watersmeet.schemes.scheme import BatchFacts

SMALL = replace(TINY, min_rewrite_rows=2, min_budget_rows=8)

# The schemes that may take a state over from each other.
SHARING = ("hash", "hypercube")


def live(script: Script) -> None:
    """Run a script; a batch that is run again must give what it gave before."""
    rng = random.Random(script.seed)

    def any_order(graph: Any, was: TermOrder, inputs: Sequence[str], *_: Any) -> tuple[TermOrder, None]:
        others = [name for name in inputs if name != was.start]
        return TermOrder(was.start, tuple(rng.sample(others, len(others)))), None

    def any_deal(*_: Any) -> bool:
        return rng.random() < 0.5

    def any_shares(scheme: delta.Delta, _: Any, facts: BatchFacts) -> KeyShares:
        assert scheme.graph is not None
        sides, left = [1] * len(scheme.graph.edges), facts.tasks
        edges = sorted({edge for _, edge in scheme.graph.keyed})
        for edge in rng.sample(edges, len(edges)):
            sides[edge] = rng.choice(divisors(left))
            left //= sides[edge]
        return KeyShares(tuple(sides), facts.batch, 0, 0)

    limits = SMALL
    with contextlib.ExitStack() as stack:
        if script.any_shares:
            stack.enter_context(mock.patch.object(delta.Delta, "_shares", any_shares))
        if script.any_order:
            stack.enter_context(mock.patch.object(delta, "needs_foresight", return_value=True))
            stack.enter_context(mock.patch.object(delta, "decide_order", any_order))
            stack.enter_context(mock.patch.object(delta, "deals_late", any_deal))
            limits = replace(limits, repeated_part=rng.choice([0.0, 0.1, 10.0]))
        live_on(script, limits)


def live_on(script: Script, limits: Limits = SMALL) -> None:
    names = NAMES[: script.inputs]
    batches = batches_of(script)
    found: list[Counter] = []
    with tempfile.TemporaryDirectory() as state:
        try:
            join = start(
                {name: schema_of(number) for number, name in enumerate(names)},
                state,
                script.on,
                tasks=script.steps[0][0],
                settings={"run_rows": 3, "limits": limits, "retain_batches": 3},
                select=[f"{name}.id AS {name}" for name in names],
                **WINDOWS[script.window](names),
            )
        except PredicateError as error:
            # Some bands are decided by their order words, but as conditions only Spark tests them.
            if "only Spark can evaluate" not in str(error):
                raise
            reject()
        counted = {one for batch in batches for one in ids_that_count(join, batch)}
        one_key = join.operator.spec.scheme.name in SHARING
        note(f"{script.on}: {join.operator.spec.scheme.name}")
        rng = random.Random(script.seed)
        for number, (tasks, crash, zombie, back) in enumerate(script.steps):
            at = max(0, number - back)
            strategy = rng.choice(SHARING) if one_key else join.strategy
            join = restarted(join, at, tasks=tasks, strategy=strategy)
            for again in range(at, number):
                problem = difference(run_batch(join, batches[again]), found[again])
                assert not problem, f"batch {again}, run again: {problem}"
            join, new = run_through(join, batches[number], crash, zombie=zombie)
            found.append(new)
    assert not difference(sum(found, Counter()), expected(script, batches, counted))


def ids_that_count(join: LocalJoin, batch: dict[str, list[pa.Table]]) -> Iterator[int]:
    """The rows that a window counts: those that no condition on their input drops, and that have no null key.

    Which equalities and bands are keys is decided when the join is compiled.
    """
    for spec in join.operator.spec.signature.inputs:
        if spec.of:
            continue
        for arrived in (part for rows in batch[spec.name] for part in join.arriving(spec.name, rows)):
            keys = [arrived.column(name).to_pylist() for name in spec.required or spec.keys]
            yield from (
                one
                for one, *mine in zip(arrived.column("id").to_pylist(), *keys, strict=True)
                if None not in mine
            )


@LIVES
@given(scripts())
def test_any_life_over_any_graph_and_types_gives_what_one_big_join_gives(script):
    live(script)


@LIVES
@given(scripts(least=3, windows=("time", "rows")))
def test_any_life_with_a_window_gives_what_its_rules_say(script):
    live(script)


@settings(LIVES, max_examples=LIVES.max_examples // 3)
@given(
    scripts(
        least=3,
        most=5,
        windows=(None, None, "time", "rows"),
        kinds=("band", "band", "key"),
        spreads=(4, 6),
    )
)
def test_any_life_over_bands_of_any_type_gives_what_one_big_join_gives(script):
    live(script)


@settings(LIVES, max_examples=LIVES.max_examples // 3)
@given(scripts(least=4, windows=(None, None, "time", "rows"), spreads=(1, 1, 1, 2), all_pairs=True))
def test_any_life_over_a_clique_of_four_gives_what_one_big_join_gives(script):
    live(script)


def test_integers_that_equal_a_double_need_not_equal_each_other(tmp_path):
    """The class of `a`, `c` and `e` closes a cycle, so it is tested and not looked up: in double, as it is written."""
    on = (
        "a.n = b.n AND b.n = c.n AND c.n = d.n AND b.m = c.m AND c.m = d.m AND d.m = e.m "
        "AND a.big = c.g AND c.g = e.big"
    )
    schema = pa.schema({"n": pa.int32(), "m": pa.int32(), "big": pa.int64(), "g": pa.float64()})
    join = LocalJoin(
        dict.fromkeys("abcde", schema), on=on, select=["a.big AS a", "e.big AS e"], state=str(tmp_path)
    )

    def rows(*bigs: int) -> pa.Table:
        return pa.table([[1] * len(bigs), [1] * len(bigs), bigs, [float(EDGE)] * len(bigs)], schema=schema)

    found = join.batch(a=rows(EDGE, EDGE + 1, EDGE + 2), b=rows(0), c=rows(0), d=rows(0), e=rows(EDGE + 1))
    assert multiset(found) == Counter([(EDGE, EDGE + 1), (EDGE + 1, EDGE + 1)])
