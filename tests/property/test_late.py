"""Late deals: every combination goes to one task, or to all of them to be dealt later, and to each in its turn."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from watersmeet.kernel.late import Cards, LateDeal

counts = st.lists(st.tuples(*[st.sampled_from([1, 1, 2, 3, 50, 10**9])] * 3), min_size=1, max_size=60)


@given(counts, st.integers(1, 12))
def test_each_combination_is_one_task_s_or_all_tasks(found, tasks):
    columns = [np.array(column) for column in zip(*found, strict=True)]
    own: Counter[int] = Counter()
    large = []
    for hand in range(tasks):
        for keep, late in LateDeal(hand, tasks, 0).cut(columns):
            if late is None:
                own.update(keep.tolist())
            else:
                large.append(keep.tolist())
    assert set(own.values()) <= {1}
    assert all(one == large[0] for one in large) and len(large) in (0, tasks)
    assert own.keys() | set(large[0] if large else ()) == set(range(len(found)))
    assert not own.keys() & set(large[0] if large else ())


@given(st.lists(st.integers(0, 9), max_size=6), st.integers(1, 7))
def test_cards_go_to_all_hands_in_turn(pieces, hands):
    cards = [Cards(hand, hands) for hand in range(hands)]
    total: Counter[int] = Counter(dict.fromkeys(range(hands), 0))
    for piece in pieces:
        dealt = [one.next_of(piece).tolist() for one in cards]
        assert sorted(place for mine in dealt for place in mine) == list(range(piece))
        total.update({hand: len(mine) for hand, mine in enumerate(dealt)})
    assert max(total.values()) - min(total.values()) <= 1


@given(st.sampled_from([1, 2, 6, 8, 12]), st.integers(0, 100), st.integers(0, 100))
def test_groups_share_out_all_combinations(tasks, room_rows, combinations):
    """Each combination goes to a group of tasks that are numbered anew; no group repeats more than the room."""
    reached: Counter[int] = Counter()
    groups: dict[tuple[int, ...], list[tuple[int, int]]] = {}
    for hand in range(tasks):
        cards, late = LateDeal(hand, tasks, room_rows).next_step(combinations, last=False)
        mine = range(combinations) if cards is None else cards.next_of(combinations).tolist()
        groups.setdefault(tuple(mine), []).append((0, 1) if late is None else (late.hand, late.of))
        if late is not None:
            assert combinations // (tasks // late.of) <= room_rows
    for mine, members in groups.items():
        reached.update(mine)
        if mine:
            assert sorted(hand for hand, _ in members) == list(range(members[0][1]))
    assert reached == Counter(range(combinations))
