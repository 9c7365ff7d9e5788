"""What the algorithm as published loses or lets through: one example each, on a single node that gets messages by hand."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import replace

import pytest

from papers.rjoin.messages import Insert, NewRow, Outgoing
from papers.rjoin.next_key import Rule
from papers.rjoin.node import Node, Settings
from papers.rjoin.query import Column, Query, Row, candidates, check
from tests.papers.rjoin.scripts import expected

R_A, R_B, S_A, S_B, P_A, P_B = (Column(name, attribute) for name in "RSP" for attribute in "AB")
TWO = Query("q", "n", 0, (R_B, S_B), ((R_A, S_A),))
THREE = Query("q", "n", 0, (R_B, S_B, P_B), ((R_A, S_A), (S_A, P_A)))


def row(relation: str, a: int, b: int, published: int) -> Row:
    return Row(relation, {"A": a, "B": b}, published)


class Alone:
    """A ring of one node: what it sends comes back to it in order, at once."""

    def __init__(self, settings: Settings) -> None:
        self.node = Node("n", settings, lambda count: 0)

    def submit(self, now: int, query: Query) -> None:
        self._settle(now, self.node.submit(now, query))

    def arrive(self, now: int, row: Row) -> None:
        for one in row.index_keys():
            self._settle(now, self.node.receive(now, NewRow(row, one)))

    def _settle(self, now: int, messages: list[Outgoing]) -> None:
        waiting = deque(messages)
        while waiting:
            waiting.extend(self.node.receive(now, waiting.popleft().message))

    @property
    def answers(self) -> Counter[tuple[int | str, ...]]:
        return Counter(answer.values for answer in self.node.answers)


def lived(query: Query, rows: list[tuple[int, Row]], settings: Settings) -> Counter[tuple[int | str, ...]]:
    alone = Alone(settings)
    alone.submit(0, query)
    for now, one in rows:
        alone.arrive(now, one)
    return alone.answers


FIRST = Settings(rule=Rule.FIRST, delta=2)


def within(answers: list[Row], width: int) -> bool:
    times = [one.published for one in answers]
    return max(times) - min(times) + 1 <= width


@pytest.mark.parametrize(("delta", "given"), [(2, 0), (None, 1)], ids=["two units", "without end"])
def test_a_rewritten_query_under_a_pair_misses_rows_that_have_left_the_altt(delta, given):
    """Section 6 (a) against Theorem 1: P came long before R, and R's row sends the query to a pair of P."""
    chain = replace(THREE, where=((R_A, S_A), (S_B, P_A)))
    rows = [(1, row("P", 5, 0, 1)), (10, row("R", 3, 0, 10)), (11, row("S", 3, 5, 11))]
    assert expected(chain, [one for _, one in rows]).total() == 1

    def always_p(rule, keys, known, draw):
        columns = [key for key in keys if key in (P_A,)]
        return columns[0] if columns and len(keys) > 1 and R_A not in keys else keys[0]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("papers.rjoin.node.choose", always_p)
        assert lived(chain, rows, replace(FIRST, delta=delta)).total() == given


@pytest.mark.parametrize(("delta", "given"), [(3, 0), (9, 1)], ids=["one delay", "with the request"])
def test_a_delta_of_one_delay_is_too_small_for_a_query_that_first_asks_for_rates(delta, given):
    """The query asks R's node and S's, hears from S's, and is sent: three units each, and the row came at once."""
    alone = Alone(Settings(rule=Rule.RATE, delta=delta))
    for _ in range(2):
        # So that R's rate is the lower one.
        alone.arrive(0, row("S", 9, 9, -1))
    ask = alone.node.submit(0, TWO)
    alone.arrive(0, row("R", 3, 1, 0))
    for now in (3, 6, 9):
        (sent,) = ask
        if isinstance(sent.message, Insert):
            break
        ask = alone.node.receive(now, sent.message)
    (sent,) = ask
    assert isinstance(sent.message, Insert)
    alone._settle(9, [sent])
    alone.arrive(10, row("S", 3, 2, 10))
    assert alone.answers.total() == given


def test_whether_a_window_lets_an_answer_through_depends_on_the_order_of_evaluation():
    """R at 10, P at 1, S at 19 in a window of 10: nineteen units wide. It comes out, or not, by which relation is first."""
    rows = [(1, row("P", 3, 1, 1)), (10, row("R", 3, 2, 10)), (19, row("S", 3, 3, 19))]
    assert not within([one for _, one in rows], 10)
    from_r = replace(THREE, window=10, where=((R_A, P_A), (P_A, S_A)))
    from_s = replace(THREE, window=10, where=((S_A, P_A), (P_A, R_A)))
    assert lived(from_r, rows, FIRST).total() == 1
    assert lived(from_s, rows, FIRST).total() == 0


def test_a_window_drops_a_query_that_a_late_row_still_fits():
    """S of 20 overtakes S of 5. It ends the query of R at 1, and so the answer of R at 1 with S at 5."""
    late, early = row("S", 3, 7, 5), row("S", 3, 8, 20)
    query = replace(TWO, window=10)
    r = row("R", 3, 2, 1)
    assert within([r, late], 10)
    assert lived(query, [(1, r), (5, late), (20, early)], FIRST) == {(2, 7): 1}
    assert lived(query, [(1, r), (20, early), (21, late)], FIRST) == {}


def test_a_window_in_order_and_two_streams_is_exact_at_its_border():
    query = replace(TWO, window=10)
    for newest, given in ((10, 1), (11, 0)):
        rows = [(1, row("R", 3, 2, 1)), (newest, row("S", 3, 7, newest))]
        assert lived(query, rows, FIRST).total() == given


def test_distinct_emits_twice_what_two_rewritten_queries_find():
    """SELECT DISTINCT R.B: two rows of R differ in a joined column only, so two queries wait, and neither knows of the other."""
    query = replace(TWO, select=(R_B,), distinct=True)
    rows = [(1, row("R", 3, 1, 1)), (2, row("R", 4, 1, 2)), (3, row("S", 3, 0, 3)), (4, row("S", 4, 0, 4))]
    assert lived(query, rows, FIRST) == {(1,): 2}


def test_distinct_emits_twice_for_two_rows_that_are_the_same_to_the_query():
    """Projections are kept where a rewritten query is stored, and not where the input query is: the first hop repeats itself."""
    query = replace(TWO, select=(S_B,), distinct=True)
    rows = [(1, row("R", 3, 1, 1)), (2, row("R", 3, 2, 2)), (3, row("S", 3, 9, 3))]
    assert lived(query, rows, FIRST) == {(9,): 2}


def test_distinct_drops_the_second_of_two_rows_where_the_paper_shows_it():
    """Example 2 of section 4, with and without DISTINCT."""
    rows = [(1, row("R", 2, 1, 1)), (2, row("S", 2, 5, 2)), (3, row("S", 2, 5, 3))]
    assert lived(TWO, rows, FIRST) == {(1, 5): 2}
    assert lived(replace(TWO, distinct=True), rows, FIRST) == {(1, 5): 1}


def test_distinct_under_a_window_loses_an_answer():
    """S of 15 has come before S of 12 and looks the same. It takes its projection, then P of 5 is too far from it; S of 12
    would have met P of 5, eight units from end to end."""
    query = replace(THREE, select=(R_B,), window=10)
    p, r = row("P", 3, 0, 5), row("R", 3, 1, 10)
    newer, older = row("S", 3, 0, 15), row("S", 3, 0, 12)
    assert within([p, r, older], 10)
    rows = [(5, p), (15, newer), (16, older), (17, r)]
    assert lived(query, rows, FIRST) == {(1,): 1}
    assert lived(replace(query, distinct=True), rows, FIRST) == {}


def test_values_are_implied_through_other_columns():
    query = replace(THREE, where=((3, S_A), (S_A, P_A), (P_B, R_B)))
    names = [key.text for key in candidates(query, rewritten=True)]
    assert names == ["S.A=3", "P.A=3", "P.B", "R.B"]
    assert [key.text for key in candidates(query, rewritten=True, implied=False)] == ["S.A=3", "P.A", "R.B"]
    assert [key.text for key in candidates(query, rewritten=True, pairs=False)] == ["S.A=3", "P.A=3"]
    assert [key.text for key in candidates(query, rewritten=False)] == ["S.A", "P.A", "R.B"]


def test_a_query_whose_relations_are_not_connected_is_refused():
    with pytest.raises(ValueError, match="q: no condition connects P"):
        check(replace(THREE, where=((R_A, S_A),)))
