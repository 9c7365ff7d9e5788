"""What templates keep: the choice by the load, and the kept numbers of queries."""

from __future__ import annotations

import pytest

from watersmeet.hubs import keep_choice
from watersmeet.hubs.catalogue import ADD, REMOVE, Command, HubCatalogue, apply_commands
from watersmeet.hubs.keep import kept_floors, numbered, undecided, with_choices
from watersmeet.hubs.keep_choice import HubLoad, KeptInputs, choose_kept, is_considered
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
    ("given", "inputs"),
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
def test_a_template_keeps_what_saves_more_than_it_costs(given, inputs):
    assert chosen(given) == inputs


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


def test_a_template_is_looked_at_when_rows_have_met_and_then_more_and_more_seldom():
    assert [one for one in range(-1, 300) if is_considered(Keep.AUTO, one)] == [4, 16, 64, 256]
    assert is_considered(Keep.ALWAYS, 0) and not is_considered(Keep.ALWAYS, -1)
    assert not any(is_considered(Keep.NEVER, one) for one in range(70))


def test_the_cost_of_a_row_decides(monkeypatch):
    given = load(100_000, 1.06, constants=0.3)
    assert chosen(given) is None
    monkeypatch.setattr(keep_choice, "LOOKUPS_FOR_A_ROW", 1.0)
    assert chosen(given) is not None


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
