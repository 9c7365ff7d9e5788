"""Chord: every message arrives at the successor of its key, in few hops, whatever nodes come and go."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from papers.rjoin.chord import RING, SUCCESSORS, Chord, Peer, RouteLost, hash_key
from papers.rjoin.sim.ring import Ring, hashed
from tests.property.test_mutants import Mutant, cases, is_noticed

# Rounds of stabilising after which a ring of this size has found itself again.
ROUNDS, START = 6, 10


def is_right(chord: Chord, keys: list[int]) -> bool:
    """Whether every node finds the successor of every key."""
    return all(
        chord.lookup(peer, key)[-1] is chord.owner(key) for peer in chord.peers.values() for key in keys
    )


@settings(max_examples=12)
@given(st.integers(0, 2**32), st.lists(st.sampled_from(["join", "leave", "fail", "round"]), max_size=16))
def test_a_ring_finds_itself_again(seed, events):
    """Nodes come, go, and fail without a word, at most as many at a time as a successor list can bear."""
    try:
        live(seed, events)
    except RouteLost as lost:
        raise AssertionError(str(lost)) from lost


def live(seed, events):
    rng = np.random.default_rng(seed)
    chord = Chord(f"node {n}" for n in range(START))
    failed = 0

    def anybody() -> Peer:
        return chord.peers[sorted(chord.peers)[rng.integers(0, len(chord.peers))]]

    def round_of_all() -> None:
        for ident in sorted(chord.peers):
            chord.stabilise(chord.peers[ident])

    for number, event in enumerate(events):
        if event == "join":
            chord.join(f"late node {number}", via=anybody())
        elif event == "round":
            round_of_all()
            failed = 0
        elif len(chord.peers) > SUCCESSORS and failed < SUCCESSORS // 2:
            (chord.fail if event == "fail" else chord.leave)(anybody())
            failed += 1
    for _ in range(ROUNDS):
        round_of_all()
    assert is_right(chord, [hash_key(str(n)) for n in range(10)])
    assert all(chord.lookup(peer, peer.ident)[-1] is peer for peer in chord.peers.values())


@pytest.mark.parametrize("nodes", [1, 2, 3, 50])
def test_a_settled_ring_is_right(nodes):
    chord = Chord(f"node {n}" for n in range(nodes))
    edges = [ident + step for ident in chord.peers for step in (-1, 0, 1)]
    assert is_right(chord, [edge % RING for edge in edges])


def test_a_message_takes_half_the_logarithm_of_the_nodes():
    """With 10^3 nodes and more; the farthest takes a small multiple of it."""
    chord = Chord(f"node {n}" for n in range(1500))
    rng = np.random.default_rng(1)
    peers = list(chord.peers.values())
    keys = [int(key) for key in rng.integers(0, RING, 400, dtype=np.uint64)]
    hops = [len(chord.lookup(peers[rng.integers(0, len(peers))], key)) - 1 for key in keys]
    assert 0.4 * math.log2(1500) < np.mean(hops) < 0.65 * math.log2(1500)
    assert max(hops) < 2 * math.log2(1500)


def test_a_node_that_lost_all_its_successors_says_so():
    chord = Chord(f"node {n}" for n in range(SUCCESSORS + 3))
    order = sorted(chord.peers)
    for ident in order[1 : SUCCESSORS + 1]:
        chord.fail(chord.peers[ident])
    with pytest.raises(RouteLost, match="all of its 8 successors"):
        chord.stabilise(chord.peers[order[0]])


def test_the_ring_as_arrays_sends_messages_the_same_way():
    """`sim.ring` against the peers, node by node; and it counts what they send."""
    names = [f"node {n}" for n in range(40)]
    keys = [f"key {n}" for n in range(60)]
    chord, ring = Chord(names), Ring(hashed(names), hashed(keys))
    place = {name: number for number, name in enumerate(names)}
    flows = np.zeros((len(names), len(names)), np.int64)
    sent = np.zeros(len(names), np.int64)
    for sender in names:
        for number, key in enumerate(keys):
            path = [place[peer.address] for peer in chord.lookup(chord.peer(sender), hash_key(key))]
            goal = int(ring.node_of[number])
            assert path[-1] == goal
            assert ring.hops[place[sender], goal] == len(path) - 1
            assert all(ring.next_hop[here, goal] == there for here, there in itertools.pairwise(path))
            flows[place[sender], goal] += 1
            np.add.at(sent, path[:-1], 1)
    assert ring.sent_by(flows).tolist() == sent.tolist()


def is_between_without_the_wrap(ident: int, low: int, high: int) -> bool:
    return low < ident <= high or low == high


def never_told(self, peer, other):
    """Peers that do not learn of a new predecessor."""


CHORD = "papers.rjoin.chord"
MUTANTS = [
    Mutant(
        "a ring that ends",
        {f"{CHORD}.is_between": is_between_without_the_wrap},
        (test_a_ring_finds_itself_again,),
    ),
    Mutant(
        "nodes that tell nobody of themselves",
        {f"{CHORD}.Chord._notify": never_told},
        (test_a_ring_finds_itself_again,),
    ),
]


@pytest.mark.parametrize(("mutant", "killer"), cases(MUTANTS))
def test_a_broken_ring_is_noticed(mutant, killer, monkeypatch):
    assert is_noticed(mutant, killer, monkeypatch)
