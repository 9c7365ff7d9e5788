"""What templates keep: the choice by the load, and the kept numbers of queries."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from watersmeet.engine import hub_load
from watersmeet.hubs import keep_choice
from watersmeet.hubs.catalogue import ADD, REMOVE, Command, HubCatalogue, apply_commands
from watersmeet.hubs.keep import gain_expected, kept_floors, numbered, undecided, with_choices
from watersmeet.hubs.keep_choice import HubLoad, KeptInputs, choose_kept, due_templates
from watersmeet.hubs.language import Equality, Template
from watersmeet.hubs.needed import needed_of
from watersmeet.hubs.steps import Attributes
from watersmeet.hubs.templates import TemplateReader
from watersmeet.model.keep import Keep
from watersmeet.model.types import INT

SCHEMAS = {name: {"a": INT, "b": INT, "c": INT} for name in "RSPQ"}
READER = TemplateReader(SCHEMAS)
CHAIN = "SELECT R.a FROM R, S, P, Q WHERE R.a = S.b AND S.a = P.b AND P.a = Q.b"
SECOND = 1_000_000
KEPT = KeptInputs((0, 1), 10.0, 1000.0)


def load(rows: dict[str, float] | float, fan_out: float, constants: float = 0.025) -> HubLoad:
    by_stream = rows if isinstance(rows, dict) else dict.fromkeys("RSPQ", rows)

    def passing(_: int, input_: int) -> float:
        return constants if input_ == 0 else 1.0

    return HubLoad(by_stream, lambda value, sought: fan_out, passing)


def chosen(load_: HubLoad, keep: str = Keep.AUTO, text: str = CHAIN) -> tuple[int, ...] | None:
    found = choose_kept({7: READER.read(text).template}, load_, keep)
    return found[7].inputs if found else None


@pytest.mark.parametrize(
    ("found", "inputs"),
    [
        # One in 40 rows of R passes: its combinations with S save P and Q the way to R.
        pytest.param(load(100_000, 1.06), (0, 1), id="a selective constant at one end"),
        pytest.param(load(100_000, 1.06, constants=1.0), None, id="no constant"),
        pytest.param(load(100_000, 0.07, constants=1.0), None, id="values that find hardly any row"),
        pytest.param(
            load({"R": 5.0, "S": 5.0, "P": 5.0, "Q": 500_000}, 3.0, 1.0), (0, 1, 2), id="slow streams"
        ),
        pytest.param(
            load({"R": 500_000, "S": 5.0, "P": 5.0, "Q": 5.0}, 3.0, 1.0), (1, 2, 3), id="the other way"
        ),
        pytest.param(load(1_000, 1.06), None, id="too few rows to pay for runs"),
    ],
)
def test_a_template_keeps_what_saves_more_than_it_costs(found, inputs):
    assert chosen(found) == inputs


def test_always_keeps_the_best_set_also_where_it_does_not_pay():
    assert chosen(load(10, 0.07, constants=1.0), Keep.ALWAYS) is not None
    assert chosen(load(10, 1.06), Keep.ALWAYS) == (0, 1)


def test_what_is_saved_grows_with_the_rows_of_the_others_and_what_is_stored_with_those_that_are_kept():
    found = {}
    for rows in (1_000.0, 2_000.0):
        faster = {"R": 1_000.0, "S": 1_000.0, "P": rows, "Q": rows}
        one = choose_kept({0: READER.read(CHAIN).template}, load(faster, 1.0), Keep.ALWAYS)[0]
        found[rows] = one.saved_lookups, one.stored_rows
    assert found[2_000.0][0] == 2 * found[1_000.0][0] > 0
    assert found[2_000.0][1] == found[1_000.0][1] == pytest.approx(50)


def due(came: list[int], walks: list[int], batch: int, keep: str = Keep.AUTO) -> list[int]:
    every = np.arange(len(came))
    return due_templates(np.array(came), np.array(walks), every, batch, keep).templates.tolist()


def test_a_template_is_looked_at_when_rows_have_met_and_then_more_and_more_seldom():
    assert [one for one in range(300) if due([0], [10], one)] == [4, 16, 64, 256]
    assert [one for one in range(30) if due([7], [10], one)] == [11, 23]
    assert not any(due([0], [0], one) for one in range(30)), "a pair keeps nothing"
    assert [one for one in range(4) if due([1], [10], one, Keep.ALWAYS)] == [1, 2, 3]
    assert not any(due([0], [10], one, Keep.NEVER) for one in range(70))


@given(
    st.lists(st.tuples(st.integers(0, 12), st.sampled_from([0, 30, 90, 250])), min_size=1, max_size=40),
    st.integers(0, 30),
)
def test_a_batch_considers_no_more_than_it_may_and_each_template_gets_its_turns(templates, later):
    """Against a queue that is kept from batch to batch: first come, first served, so much in each batch."""
    came, walks = (list(column) for column in zip(*templates, strict=True))
    queue: list[int] = []
    with mock.patch.object(keep_choice, "MOST_WALKS", 100):
        debt = 0
        for batch in range(75 + later):
            by_first = sorted(range(len(came)), key=lambda one: (came[one], one))
            queue += [one for one in by_first if walks[one] and batch - came[one] in (4, 16, 64)]
            expected = []
            while queue and debt < 100:
                expected.append(queue.pop(0))
                debt += walks[expected[-1]]
            debt = max(0, debt - 100)
            found = due(came, walks, batch)
            assert found == sorted(set(expected))
            assert sum(walks[one] for one in found[:-1]) <= 100 + 250


def test_what_is_decided_meanwhile_does_not_make_others_lose_their_turns(monkeypatch):
    monkeypatch.setattr(keep_choice, "MOST_WALKS", 100)
    came, walks, waiting = np.zeros(10, np.int64), np.full(10, 50), np.arange(10)
    seen: list[int] = []
    for batch in range(16):
        found = due_templates(came, walks, waiting, batch, Keep.AUTO)
        assert found.share == pytest.approx(0.2 if 4 <= batch < 9 else 1.0)
        seen += found.templates.tolist()
        waiting = np.setdiff1d(waiting, found.templates)
    assert seen == list(range(10))


def test_with_always_the_others_move_up(monkeypatch):
    monkeypatch.setattr(keep_choice, "MOST_WALKS", 100)
    waiting, seen = np.arange(5), []
    for batch in range(3):
        found = due_templates(np.zeros(5, np.int64), np.full(5, 50), waiting, batch, Keep.ALWAYS)
        seen.append(found.templates.tolist())
        waiting = np.setdiff1d(waiting, found.templates)
    assert seen == [[0, 1], [2, 3], [4]]


def test_templates_of_one_shape_are_estimated_once():
    texts = [CHAIN.replace("R.a FROM", f"{item} FROM") for item in ("R.a", "S.c", "Q.a")]
    templates = {number: READER.read(text).template for number, text in enumerate(texts)}
    with mock.patch.object(keep_choice, "_best", wraps=keep_choice._best) as best:
        found = choose_kept(templates, load(100_000, 1.06))
        assert {one.inputs for one in found.values()} == {(0, 1)} and len(found) == 3
        assert best.call_count == 1
        other = {0: templates[0], 1: READER.read(CHAIN.replace("R.a = S.b", "R.b = S.b")).template}
        choose_kept(other, load(100_000, 1.06))
        assert best.call_count == 3
        by_number = HubLoad(
            dict.fromkeys("RSPQ", 1e5), lambda value, sought: 1.06, lambda one, input_: 0.1 * (one + 1)
        )
        choose_kept(templates, by_number)
        assert best.call_count == 6, "constants that pass other shares of the rows"


def test_estimates_are_those_of_walks_over_each_set_alone():
    star = Template(
        tuple("rspqt"),
        ("R", "S", "P", "Q", "S"),
        (
            Equality(0, "a", 1, "b"),
            Equality(0, "a", 2, "b"),
            Equality(0, "c", 3, "b"),
            Equality(3, "a", 4, "b"),
            Equality(4, "a", 2, "b"),
        ),
        (),
        (),
    )
    given_ = HubLoad({"R": 10.0, "S": 40.0, "P": 5.0, "Q": 7.0}, fan_of, lambda one, input_: 1.0)
    passing = (0.5, 1.0, 2.0, 0.1, 1.0)
    for one in keep_choice._estimates(star, passing, given_):
        saved = [plain_walk(star, start, one.inputs, passing, given_) for start in range(5)]
        outside = [start for start in range(5) if start not in one.inputs]
        assert one.saved_lookups == pytest.approx(sum(sum(saved[start][1:]) for start in outside))


def test_combinations_are_stored_for_each_input_outside_that_looks_in():
    star = "SELECT R.a FROM R, S, P, Q WHERE R.a = S.b AND R.a = P.b AND R.a = Q.b"
    for text, stored in ((CHAIN, 50), (star, 100)):
        estimates = keep_choice._estimates(
            READER.read(text).template, (0.025, 1.0, 1.0, 1.0), load(1_000, 1.0)
        )
        assert {one.inputs: one.stored_rows for one in estimates}[0, 1] == pytest.approx(stored)


def fan_of(value: tuple[str, str], sought: tuple[str, str]) -> float:
    return 0.3 * (1 + "RSPQ".index(value[0])) + 0.1 * "abc".index(sought[1])


def plain_walk(template, start, first, passing, load_) -> list[float]:
    """The lookups of a walk, without anything that is shared."""
    bound, combinations, lookups = {start}, load_.rows[template.streams[start]] * passing[start], []
    while len(bound) < len(template.streams):
        fans: dict[int, float] = {}
        for one in template.equalities:
            sides = (one.left, one.left_column), (one.right, one.right_column)
            for (near, column), (far, sought) in (sides, sides[::-1]):
                if near in bound and far not in bound:
                    value = template.streams[near], column
                    fan = load_.fan_out(value, (template.streams[far], sought))
                    fans[far] = min(fan, fans.get(far, fan))
        following = min(fans, key=lambda one: (one not in first, passing[one] >= 1, one))
        if following in first:
            lookups.append(combinations)
        combinations *= fans[following] * passing[following]
        bound.add(following)
    return lookups


def test_templates_that_come_later_need_not_gain_as_much_as_the_first_again():
    one = {7: READER.read(CHAIN).template}
    small = load(1_000, 1.06)
    assert not choose_kept(one, small) and not choose_kept(one, small, gained=90_000.0)
    assert choose_kept(one, small, gained=100_000.0)
    assert choose_kept(one, small, share=0.01), "of 100 templates that came due together"


def test_the_gain_of_templates_that_keep_is_that_which_was_expected():
    texts = [CHAIN.replace("R.a = S.b", f"R.{c} = S.{d}") for c in "abc" for d in "ab"][:5]
    found = catalogue(HubCatalogue(), 3, *((ADD, f"q{at}", text) for at, text in enumerate(texts)))
    assert gain_expected(found) == 0
    choices = {
        0: KeptInputs((0, 1), 10.0, 1000.0),
        1: KeptInputs((1, 2), 1.0, 50.0),
        # It was made to keep. Others do not have to make up for it.
        2: KeptInputs((1, 2), 1e6, 50.0),
        3: KeptInputs((), 1.0, 500.0),
    }
    assert gain_expected(with_choices(found, choices, 4)) == 920 + 42


def test_the_cost_of_a_row_decides(monkeypatch):
    narrow = load(100_000, 1.06, constants=0.3)
    assert chosen(narrow) is None
    monkeypatch.setattr(keep_choice, "LOOKUPS_FOR_A_ROW", 1.0)
    assert chosen(narrow) is not None


def test_a_batch_chooses_for_templates_that_are_due_and_reads_only_the_indexes_that_they_need(monkeypatch):
    monkeypatch.setattr(keep_choice, "MOST_WALKS", 40)
    texts = [CHAIN, CHAIN.replace("R.a = S.b", "R.c = S.c"), CHAIN.replace("P.a = Q.b", "P.c = Q.c")]
    found = catalogue(HubCatalogue(), 3, *((ADD, f"q{at}", text) for at, text in enumerate(texts)))
    found = with_choices(found, {2: KEPT}, 4)
    attributes = Attributes.of(SCHEMAS)
    names = {attributes.index_of(number): one for one, number in attributes.number.items()}
    stored = [mock.Mock(input=name, rows=10) for name in (*names, *SCHEMAS)]
    streams = mock.Mock(keep=Keep.AUTO, attributes=attributes)
    read: list[tuple[str, str]] = []

    def keys_of(run):
        read.append(names[run.input])
        return np.arange(10, dtype=np.uint64)

    with mock.patch.object(hub_load, "choose_kept", wraps=choose_kept) as chooses:
        for batch in range(11):
            hub_load.choices_of(found, streams, batch, hub_load.LoadRuns(stored, (), mock.Mock(), keys_of))
            assert chooses.call_count == max(0, min(batch - 7, 2))
            if batch == 8:
                assert set(read) == {("R", "a"), ("S", "b"), ("S", "a"), ("P", "b"), ("P", "a"), ("Q", "b")}
    told = [(list(one.args[0]), one.kwargs) for one in chooses.call_args_list]
    rest = {"gained": 920.0, "share": pytest.approx(1 / 3)}
    assert told == [([0], rest), ([1], rest)]


# --- kept numbers -----------------------------------------------------------------------------------------------------


def catalogue(before: HubCatalogue, batch: int, *commands: tuple[str, str, str | None]) -> HubCatalogue:
    changed = apply_commands(before, [Command(*one) for one in commands], batch, READER)
    return numbered(changed.catalogue, batch)


def numbers(found: HubCatalogue) -> dict[str, int | None]:
    return dict(zip(*(found.queries.column(name).to_pylist() for name in ("id", "kept")), strict=True))


def test_queries_share_a_number_if_the_constants_of_the_kept_inputs_are_the_same():
    text = f"{CHAIN} AND R.c = 1 AND Q.c = 2"
    found = catalogue(
        HubCatalogue(),
        3,
        (ADD, "one", text),
        (ADD, "same", text.replace("Q.c = 2", "Q.c = 9")),
        (ADD, "other", text.replace("R.c = 1", "R.c = 9")),
        (ADD, "pair", "SELECT R.a FROM R, S WHERE R.a = S.a"),
    )
    assert undecided(found).tolist() == [0, 1] and set(numbers(found).values()) == {None}
    found = numbered(with_choices(found, {0: KEPT}, 4), 4)
    given = numbers(found)
    assert given["one"] == given["same"] != given["other"] and given["pair"] is None
    new = (ADD, "new", text.replace("R.c = 1", "R.c = 5"))
    later = catalogue(found, 5, (ADD, "late", text), new, (REMOVE, "other", None))
    assert numbers(later)["late"] == given["one"]
    assert numbers(later)["new"] not in set(given.values())
    # A number is never given twice: the combinations of before are not those that the new query counts.
    again = catalogue(later, 6, (ADD, "other", text.replace("R.c = 1", "R.c = 9")))
    assert numbers(again)["other"] not in set(given.values())


def test_another_choice_gives_other_numbers():
    found = numbered(with_choices(catalogue(HubCatalogue(), 3, (ADD, "q", CHAIN)), {0: KEPT}, 4), 4)
    other = numbered(with_choices(found, {0: KeptInputs((1, 2), 1.0, 2.0)}, 5), 5)
    assert numbers(found)["q"] != numbers(other)["q"] is not None
    assert numbers(numbered(with_choices(other, {0: None}, 6), 6))["q"] is None


def test_a_query_that_reaches_back_ends_what_its_template_keeps():
    found = numbered(with_choices(catalogue(HubCatalogue(), 3, (ADD, "q", CHAIN)), {0: KEPT}, 4), 4)
    since = (ADD, "back", f"{CHAIN} SINCE TIMESTAMP '2026-01-01 00:00:00Z'")
    assert set(numbers(catalogue(found, 5, since)).values()) == {None}


def test_what_is_kept_is_needed_as_long_as_the_slowest_stream_outside_may_meet_it():
    texts = [f"{CHAIN} WINDOW 2 SECONDS", f"{CHAIN} WINDOW 5 SECONDS"]
    found = catalogue(HubCatalogue(), 3, *((ADD, f"q{at}", text) for at, text in enumerate(texts)))
    assert "~kept" not in needed_of(found, Attributes.of(SCHEMAS)).first
    found = numbered(with_choices(found, {0: KEPT}, 4), 4)
    watermarks = {"R": 1 * SECOND, "S": 2 * SECOND, "P": 90 * SECOND, "Q": 80 * SECOND}
    needed = needed_of(found, Attributes.of(SCHEMAS))
    # R and S are kept, so only rows of P and Q are to come.
    assert (needed.first["~kept"], needed.floors(watermarks)["~kept"]) == (4, 75 * SECOND)
    assert [one.tolist() for one in kept_floors(found, watermarks)] == [
        [numbers(found)["q0"]],
        [75 * SECOND],
    ]
    endless = catalogue(found, 5, (ADD, "q2", CHAIN))
    assert "~kept" not in needed_of(endless, Attributes.of(SCHEMAS)).floors(watermarks)
    assert kept_floors(endless, watermarks)[1][0] < -(1 << 62)
