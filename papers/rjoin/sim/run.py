"""One experiment at full size: queries are indexed, then tuples arrive one by one, each with all that it causes.

A tuple is done with before the next one comes, in rounds. In a round every node rewrites what has been triggered, decides
where to index the results, and sends them; what they find stored triggers the next round. Rewritten queries that one node
sends to one key in a round share a message, as the paper's grouping of similar queries does.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from papers.rjoin.sim.balance import moved
from papers.rjoin.sim.cases import (
    BALANCE_EVERY,
    FIRST,
    RANDOM,
    RANDOM_TRIPLE,
    RATE,
    RATE_WINDOW,
    VALID,
    WORST,
    Case,
    Found,
    Snapshot,
)
from papers.rjoin.sim.rates import Arrivals, Candidates
from papers.rjoin.sim.ring import Ring, hashed
from papers.rjoin.sim.steps import NO_KEY, Steps
from papers.rjoin.sim.store import Entries, Store, joined, merged
from papers.rjoin.sim.traffic import Load, Traffic
from papers.rjoin.sim.workload import (
    Chains,
    Ints,
    Rows,
    Schema,
    count_answers,
    draw_chains,
    draw_rows,
    with_own_ranks,
)

# Entries that meet stored tuples at a time: bounds the memory of a round.
_CHUNK = 1_000_000
# More than any rate.
_NEVER = np.int64(1) << 40


class Simulation:
    """The first `history` rows come before the queries. `valid` is the age up to which a known rate is used."""

    def __init__(
        self,
        schema: Schema,
        rows: Rows,
        chains: Chains,
        ring: Ring,
        *,
        rule: str = RATE,
        window: int = 0,
        history: int = 0,
        valid: int = VALID,
        seed: int = 0,
    ) -> None:
        self.schema, self.ring, self.rule, self.window = schema, ring, rule, window
        self.steps = Steps(schema, chains, rows)
        self.traffic = Traffic(ring)
        self.arrivals = Arrivals(schema, rows, RATE_WINDOW)
        self.candidates = Candidates(ring, self.arrivals, self.traffic, valid)
        self.hits, self.storage = Load(ring), Load(ring)
        self.answers, self.alone, self.moved = 0.0, 0, 0
        self.store = Store()
        self._rng = np.random.default_rng(seed)
        # Queries of which one relation is left, by key: all that is asked of them is how many there are.
        self._tails = np.zeros(schema.keys)
        self._rewritten = np.zeros(schema.keys, bool)
        for _ in range(history):
            self.arrivals.publish()
        keys = np.concatenate(rows.keys(schema), axis=1)[history:]
        order = np.argsort(keys.ravel(), kind="stable")
        # Rows by key, in order of publication; the first `_seen` of each have come.
        self._rows = history + order // keys.shape[1]
        self._begin = np.searchsorted(keys.ravel()[order], np.arange(schema.keys))
        self._seen = np.zeros(schema.keys, np.int64)
        self._insert(chains)
        self.inserting, self.inserting_ric = self.traffic.total, self.traffic.ric.total

    def _insert(self, chains: Chains) -> None:
        owners = self._rng.integers(0, self.ring.nodes, len(chains))
        number = np.arange(len(chains))
        none = np.zeros_like(number)
        new = Entries(none, number, np.full(len(chains), self.steps.fresh), none, none + 1)
        self.store.add(self._send(owners, new))

    def publish(self) -> None:
        """The next tuple: sent to all its keys, and everything that follows."""
        keys = self.arrivals.publish()
        row = self.arrivals.time - 1
        publisher = np.full(len(keys), self._rng.integers(0, self.ring.nodes))
        self.traffic.tuples.send(publisher, self.ring.node_of[keys])
        self.hits.add(keys)
        self.storage.add(keys[keys >= self.schema.pairs])
        self._seen[keys] += 1
        self.answers += float(self._tails[keys].sum())
        found = self.store.under(np.sort(keys))
        if self.window:
            # An input query's window begins with its first row, times counted from one; one that has passed is forgotten.
            found = found.take((found.start == 0) | (row + 1 - found.start + 1 <= self.window))
            started = np.where(found.start == 0, row + 1, found.start)
            found = Entries(found.key, found.query, found.word, started, found.count)
            if row % self.window == 0:
                self.store.drop(row + 2 - self.window)
        while len(found):
            found = self._round(found, row)

    def move(self) -> None:
        """Nodes move to share what is stored; nobody knows their new places."""
        ring = moved(self.ring, self.storage.by_key, self._rng)
        changed = ring.node_of != self.ring.node_of
        self.moved += int(self.storage.by_key[changed].sum())
        self.candidates.settle(ring, changed)
        for flows in self.traffic.kinds:
            flows.settle(ring)
        self.hits.settle(ring, moves=False)
        self.storage.settle(ring, moves=True)
        self.ring = ring

    def snapshot(self, tuples: int) -> Snapshot:
        kept = self.storage.by_node()
        if self.window:
            self.store.drop(self.arrivals.time + 1 - self.window)
            rows = self._seen * (np.arange(self.schema.keys) >= self.schema.pairs)
            by_key = self.store.by_key(self.schema.keys) + rows
            kept = np.bincount(self.ring.node_of, by_key, self.ring.nodes).astype(np.int64)
        return Snapshot(
            tuples=tuples,
            inserting=self.inserting,
            inserting_ric=self.inserting_ric,
            tuple_messages=self.traffic.tuples.total,
            ric_messages=self.traffic.ric.total,
            query_messages=self.traffic.queries.total,
            alone=self.alone,
            answers=round(self.answers),
            hits=self.hits.by_node(),
            storage=self.storage.by_node(),
            kept=kept,
            sent=self.traffic.by_node(),
            rewriting=len(np.unique(self.ring.node_of[self._rewritten])),
        )

    def _round(self, found: Entries, row: int) -> Entries:
        """Rewrite with the new row all that it has triggered; and then with stored rows, until nothing is rewritten."""
        rewritten = self._rewrite(found, np.full(len(found), row))
        while len(rewritten):
            sent = self._send(self.ring.node_of[rewritten.key], rewritten)
            self._receive(sent)
            if not self.window:
                sent = sent.take(~self.steps.is_tail(sent.word))
            self.store.add(sent)
            rewritten = self._meet_stored(sent)
        return rewritten

    def _receive(self, sent: Entries) -> None:
        self.hits.add(sent.key, sent.count)
        self.storage.add(sent.key, sent.count)
        self._rewritten[sent.key] = True
        if not self.window:
            tails = sent.take(self.steps.is_tail(sent.word))
            more = np.bincount(tails.key, tails.count, self.schema.keys)
            self._tails += more
            self.answers += float((more * self._seen).sum())

    def _meet_stored(self, sent: Entries) -> Entries:
        """Each query with all rows that have come under its key before."""
        sizes = self._seen[sent.key]
        ends = np.cumsum(sizes)
        parts, low = [], 0
        while low < len(sent):
            before = int(ends[low - 1]) if low else 0
            high = max(low + 1, int(np.searchsorted(ends, before + _CHUNK, side="right")))
            chosen = np.arange(low, high).repeat(sizes[low:high])
            within = np.arange(len(chosen)) + before - (ends - sizes)[chosen]
            rows = self._rows[self._begin[sent.key[chosen]] + within]
            parts.append(self._rewrite(self._started(sent.take(chosen), rows), rows))
            low = high
        return merged(joined(parts)) if parts else sent

    def _started(self, met: Entries, rows: Ints) -> Entries:
        """Section 5 for stored rows: a window begins with the newest of them. What is out of it counts zero."""
        if not self.window:
            return met
        valid = np.abs(met.start - (rows + 1)) + 1 <= self.window
        return Entries(met.key, met.query, met.word, np.maximum(met.start, rows + 1), met.count * valid)

    def _rewrite(self, met: Entries, rows: Ints) -> Entries:
        """Answers are counted; what is left of the others is returned, equal ones as one."""
        place = self.steps.place[met.query, self.steps.rows.relation[rows]]
        fits, word = self.steps.replace(met.query, met.word, place, rows)
        fits &= met.count > 0
        done = self.steps.left_over(word) == 0
        self.answers += float(met.count[fits & done].sum())
        left = fits & ~done
        return merged(Entries(met.key, met.query, word, met.start, met.count).take(left))

    def _send(self, node: Ints, queries: Entries) -> Entries:
        """Index queries that are at these nodes: the queries under their new keys."""
        keys = self.steps.candidates(
            queries.query, queries.word, all_pairs=self.rule in (RANDOM, RANDOM_TRIPLE)
        )
        key = keys[np.arange(len(keys)), self._choose(node, keys)]
        to = self.ring.node_of[key]
        sender, receiving = np.divmod(np.unique(node * self.schema.keys + key), self.schema.keys)
        receiver = self.ring.node_of[receiving]
        away = sender != receiver
        if self.rule == RATE:
            # Whoever told its rate told its address.
            self.candidates.carry(node, to, keys)
            self.traffic.queries.send_directly(sender[away])
            self.alone += int(queries.count[node != to].sum())
        else:
            self.traffic.queries.send(sender[away], receiver[away])
            self.alone += int((queries.count * self.ring.hops[node, to]).sum())
        return Entries(key, queries.query, queries.word, queries.start, queries.count)

    def _choose(self, node: Ints, keys: Ints) -> Ints:
        """nextKey for each query: the column of its key."""
        there = keys != NO_KEY
        pair = keys < self.schema.pairs
        if self.rule == RATE:
            self.candidates.ask(node, keys)
            rates = self.candidates.rates(node, keys).astype(np.int64)
            return np.where(there, 2 * rates + pair, _NEVER).argmin(axis=1)
        if self.rule == WORST:
            return np.where(there, self.arrivals.rates[keys], -1).argmax(axis=1)
        if self.rule == FIRST:
            return there.argmax(axis=1)
        if self.rule == RANDOM_TRIPLE:
            triples = there & ~pair
            there = np.where(triples.any(axis=1)[:, None], triples, there)
        drawn = (self._rng.random(len(keys)) * there.sum(axis=1)).astype(np.int64)
        return (np.cumsum(there, axis=1) > drawn[:, None]).argmax(axis=1)


def run_case(case: Case, going_on: Callable[[], bool] = lambda: True) -> Found | None:
    """The experiment; None if it was told to stop. Without a window all answers must come out, or it is an error."""
    rng = np.random.default_rng(case.seed)
    schema = Schema()
    rows = draw_rows(schema, case.history + case.tuples, case.theta, rng)
    if case.own_ranks:
        rows = with_own_ranks(schema, rows, rng)
    chains = draw_chains(schema, case.queries, case.ways, rng)
    ring = Ring(
        hashed([f"node {n}" for n in range(case.nodes)]),
        hashed([schema.name(key) for key in range(schema.keys)]),
    )
    simulation = Simulation(
        schema,
        rows,
        chains,
        ring,
        rule=case.rule,
        window=case.window,
        history=case.history,
        valid=case.valid,
        seed=case.seed,
    )
    snapshots, hits, stored = [], [], []
    for number in range(1, case.tuples + 1):
        if not going_on():
            return None
        simulation.publish()
        hits.append(simulation.hits.total)
        stored.append(simulation.storage.total)
        if number in case.snapshots:
            snapshots.append(simulation.snapshot(number))
        if case.moving and number % BALANCE_EVERY == 0 and number < case.tuples:
            simulation.move()
    live = Rows(rows.relation[case.history :], rows.values[case.history :])
    if not case.window and (wanted := count_answers(live, chains)) != snapshots[-1].answers:
        raise AssertionError(f"{case.text}: {snapshots[-1].answers:,} answers, but there are {wanted:,}")
    return Found(tuple(snapshots), np.array(hits, np.int64), np.array(stored, np.int64), simulation.moved)
