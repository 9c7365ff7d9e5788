"""How a join with tables among many inputs is cut into stages, from its texts alone."""

from __future__ import annotations

import pytest

from watersmeet.engine.chain import plan_chain
from watersmeet.engine.options import JoinOptions
from watersmeet.engine.spec import SqlSettings
from watersmeet.engine.stages import Chain, explain_chain
from watersmeet.errors import PredicateError, UsageError
from watersmeet.model.types import BIGINT, STRING

STREAM = {"k": BIGINT, "x": BIGINT, "name": STRING, "at": BIGINT}
SCHEMAS = {
    "p": {"id": BIGINT, "cat": BIGINT, "px": BIGINT, "label": STRING},
    "s": STREAM,
    "c": STREAM,
    "g": {"id": BIGINT, "sub": BIGINT, "title": STRING},
}
TABLES = {"p": ("id",), "g": ("id",)}


def plan(on: str, *, names: str = "pscg", tables: dict | None = None, streaming: bool = True, **how) -> Chain:
    keys = {name: key for name, key in (tables or TABLES).items() if name in names}
    schemas = {name: SCHEMAS[name] for name in names}
    return plan_chain(JoinOptions(on=on, **how), schemas, keys, SqlSettings(), streaming=streaming)


def shape(chain: Chain) -> list[tuple[str, str]]:
    return [(stage.name, str(stage.options.on)) for stage in chain.stages]


def test_a_table_is_looked_up_before_the_join_if_one_stream_has_its_key():
    chain = plan("s.k = c.k AND s.x = p.id AND c.x = g.id")
    assert shape(chain) == [
        ("p-s-c-g~p", "(`s`.`x` = `p`.`id`)"),
        ("p-s-c-g~g", "(`c`.`x` = `g`.`id`)"),
        ("p-s-c-g", "(`s`.`s:k` = `c`.`c:k`)"),
    ]
    assert [stage.earlier for stage in chain.stages] == [{}, {}, {"s": 0, "c": 1}]
    assert chain.main == 2
    assert explain_chain(chain) == "looked up first: p for rows of s, then g for rows of c"


@pytest.mark.parametrize("on", ["s.k = c.k AND s.x + c.x = p.id", "s.k = c.k AND s.x = p.id AND c.x = p.cat"])
def test_a_key_of_two_streams_is_looked_up_in_their_results(on):
    chain = plan(on, names="psc", tables={"p": ("id", "cat")} if "p.cat" in on else {"p": ("id",)})
    assert [stage.table for stage in chain.stages] == [None, "p"]
    assert chain.main == 0
    assert list(chain.stages[1].schemas) == ["joined", "p"]
    assert explain_chain(chain) == "looked up in the results: p"


def test_a_table_may_be_found_by_the_columns_of_another_one():
    chain = plan("p.cat = g.id AND s.x = p.id AND s.k = c.k")
    assert [(stage.table, str(stage.options.on)) for stage in chain.stages] == [
        ("p", "(`s`.`x` = `p`.`id`)"),
        ("g", "(`s`.`p:cat` = `g`.`id`)"),
        (None, "(`s`.`s:k` = `c`.`k`)"),
    ]


def test_streams_may_be_joined_through_a_table():
    chain = plan("s.x = p.id AND p.cat = c.k", names="psc")
    assert shape(chain)[-1] == ("p-s-c", "(`s`.`p:cat` = `c`.`k`)")


def test_a_condition_is_tested_by_the_first_stage_that_has_all_its_inputs():
    chain = plan(
        "s.k = c.k AND s.x = p.id AND s.x + c.x = g.id AND p.px > 5 AND s.x < p.px AND s.at > 0 AND c.at < 9 "
        "AND p.px < c.x AND g.sub <> p.cat AND 1 < 2"
    )
    assert [str(stage.options.on).count("AND") + 1 for stage in chain.stages] == [5, 3, 2]
    first, second, third = (str(stage.options.on) for stage in chain.stages)
    assert (
        "`s`.`at` > 0" in first
        and "`p`.`px` > 5" in first
        and "`s`.`x` < `p`.`px`" in first
        and "1 < 2" in first
    )
    assert "`s`.`p:px` < `c`.`x`" in second and "`c`.`at` < 9" in second
    assert third == "(`joined`.`s:x` + `joined`.`c:x` = `g`.`id`) AND (`g`.`sub` <> `joined`.`p:cat`)"


def test_only_columns_that_are_read_later_pass_a_stage():
    chain = plan("s.k = c.k AND s.x = p.id AND s.x < p.px", names="psc", select=["c.x", "p.label AS l"])
    assert chain.stages[0].options.select == ["`p`.`label` AS `p:label`", "`s`.`k` AS `s:k`"]
    assert chain.stages[1].options.select == ["`c`.`x` AS `x`", "`s`.`p:label` AS `l`"]
    assert chain.stages[1].schemas["s"] == {"p:label": STRING, "s:k": BIGINT}
    assert chain.structs is None


def test_columns_that_only_a_later_key_reads_pass_a_stage():
    chain = plan("s.x = p.id AND s.k = c.k AND s.k + c.k = g.id", select=["g.title"])
    assert chain.stages[1].options.select == ["`s`.`s:k` AS `s:k`", "`c`.`k` AS `c:k`"]
    alone = plan("s.x = p.id AND s.k = g.id", names="psg", select=["1 AS one"])
    assert [stage.options.select for stage in alone.stages] == [["`s`.`k` AS `s:k`"], ["1 AS `one`"]]


def test_without_select_every_input_is_a_struct_in_the_order_of_the_inputs():
    structs = plan("s.k = c.k AND s.x = p.id", names="psc").structs
    assert structs is not None and list(structs) == ["p", "s", "c"]
    assert structs["s"] == {"k": "s:k", "x": "s:x", "name": "s:name", "at": "s:at"}


def test_columns_with_a_colon_in_their_name_do_not_meet():
    schemas = {"s": {"k": BIGINT, "p:id": BIGINT}, "c": {"k": BIGINT}, "p": {"id": BIGINT}}
    options = JoinOptions(on="s.k = c.k AND s.`p:id` = p.id")
    chain = plan_chain(options, schemas, {"p": ("id",)}, SqlSettings())
    assert list(chain.stages[1].schemas["s"]) == ["s:k", "s:p:id", "p:id"]


@pytest.mark.parametrize("table", ["joined", "Joined"])
def test_the_results_get_a_name_that_the_table_does_not_have(table):
    schemas = {"s": STREAM, "c": STREAM, table: SCHEMAS["p"]}
    options = JoinOptions(on="s.k = c.k AND s.x + c.x = joined.id")
    chain = plan_chain(options, schemas, {table: ("id",)}, SqlSettings())
    assert list(chain.stages[1].schemas) == ["joined_", table]
    assert chain.stages[1].options.on == f"(`joined_`.`s:x` + `joined_`.`c:x` = `{table}`.`id`)"


def test_a_window_over_time_is_one_of_the_streams():
    times = {"s": "at", "c": "at"}
    chain = plan("s.k = c.k AND s.x = p.id", names="psc", within=9, time=times, select=["s.x"])
    assert [stage.options.time for stage in chain.stages] == [None, {"s": "s:at", "c": "at"}]
    assert "`s`.`at` AS `s:at`" in (chain.stages[0].options.select or ())


def test_with_a_window_over_rows_tables_are_looked_up_in_the_results():
    """A row without a partner, or with several, would count otherwise for the window of its input."""
    chain = plan("s.k = c.k AND s.x = p.id", names="psc", within="9 rows")
    assert [(stage.table, stage.options.within) for stage in chain.stages] == [(None, "9 rows"), ("p", None)]


@pytest.mark.parametrize(
    ("strategy", "lookup", "streams"),
    [("auto", "auto", "auto"), ("mesh", "mesh", "auto"), ("hash", "auto", "hash")],
)
def test_a_strategy_is_for_the_stages_that_know_it(strategy, lookup, streams):
    chain = plan("s.k = c.k AND s.x = p.id", names="psc", strategy=strategy)
    assert [stage.options.strategy for stage in chain.stages] == [lookup, streams]


def test_all_lookups_that_a_row_passes_stay_within_the_delay():
    chain = plan("s.x = p.id AND s.k = g.id AND s.k = c.k", max_delay="30 seconds", memory=7)
    assert [stage.options.max_delay for stage in chain.stages] == [15.0, 15.0, None]
    assert [stage.options.memory for stage in chain.stages] == [7, 7, None]
    chain = plan("s.x = p.id AND c.x = g.id AND s.k = c.k", max_delay="30 seconds")
    assert [stage.options.max_delay for stage in chain.stages] == [30.0, 30.0, None]


def test_left_leaves_conditions_on_streams_to_their_join():
    chain = plan("s.k = c.k AND s.x = p.id AND s.x > 3 AND p.px > 1", names="psc", how="left")
    assert shape(chain) == [
        ("p-s-c~p", "(`s`.`x` = `p`.`id`) AND (`p`.`px` > 1)"),
        ("p-s-c", "(`s`.`s:k` = `c`.`k`) AND (`s`.`s:x` > 3)"),
    ]
    assert [stage.options.how for stage in chain.stages] == ["left", "inner"]


def test_with_left_a_condition_over_two_tables_is_of_the_one_that_is_looked_up_last():
    chain = plan("s.x = p.id AND s.k = g.id AND p.px < g.sub", names="psg", how="left")
    assert [str(stage.options.on) for stage in chain.stages] == [
        "(`s`.`x` = `p`.`id`)",
        "(`s`.`s:k` = `g`.`id`) AND (`s`.`p:px` < `g`.`sub`)",
    ]


@pytest.mark.parametrize("names", ["sc", "sp", "scg"])
def test_other_joins_are_one_stage_as_they_were_asked_for(names):
    schemas = {name: SCHEMAS[name] for name in names}
    options = JoinOptions(on="true", name="mine")
    tables = {"p": ("id",)} if names == "sp" else {}
    chain = plan_chain(options, schemas, tables, SqlSettings())
    (stage,) = chain.stages
    assert (stage.name, stage.options, stage.schemas) == ("mine", options, schemas)
    assert explain_chain(chain) == ""


@pytest.mark.parametrize(
    ("on", "how", "problem"),
    [
        ("s.k = c.k AND s.x = q.id", {}, "q is not an input(.|\n)*the inputs are p, s, c"),
        ("s.k = c.k AND s.x = p.no", {}, "no is not a column of p"),
        ("s.k = c.k", {}, "nothing joins the table p to s, c(.|\n)*such as s.k = p.id"),
        ("s.k = c.k AND p.px > 3", {}, "nothing joins the table p"),
        ("s.k = c.k AND s.x = p.cat", {}, "does not say what the key p.id equals: add s.<column> = p.id"),
        ("s.k = c.k AND p.id = 5 AND s.x = p.cat", {}, "does not say what the key p.id equals"),
        ("s.k = c.k AND s.x < p.id", {}, "does not say what the key p.id equals"),
        ("s.x = p.id", {}, "nothing joins c to s(.|\n)*add a condition between c and s"),
        ("s.k + c.k = p.id", {}, "nothing joins c to s(.|\n)*looked up after they are joined"),
        (
            "s.k = c.k AND s.x = p.id AND c.x < p.px",
            {"how": "left"},
            "may read one stream, and this one reads s and c",
        ),
        (
            "s.k = c.k AND s.x + c.x = p.id",
            {"how": "left"},
            "may read one stream, and this one reads s and c",
        ),
        ("s.k = c.k AND s.x = p.id AND c.x = p.id", {"how": "left"}, "this one reads s and c"),
    ],
)
def test_predicates_that_are_refused(on, how, problem):
    with pytest.raises(PredicateError, match=problem) as refused:
        plan(on, names="psc", **how)
    assert refused.value.text == on


@pytest.mark.parametrize(
    ("how", "problem"),
    [
        ({"how": "full"}, "how='full' is unknown for a table"),
        ({"select": ["q.id"]}, "q is not an input"),
        ({"within": 5, "time": {"s": "at", "c": "at", "p": "id"}}, "time= names 'p', which is a table"),
        ({"within": 5, "time": {"s": "at"}}, "time= has no column for input c"),
        (
            {"within": 5, "time": {"s": "at", "c": "at"}, "max_delay": 3},
            "max_delay= cannot be combined with a window",
        ),
        ({"max_delay": "soon"}, "max_delay must be a duration"),
    ],
)
def test_arguments_that_are_refused(how, problem):
    with pytest.raises(UsageError, match=problem):
        plan("s.k = c.k AND s.x = p.id", names="psc", **how)


def test_one_stream_with_several_tables_has_no_window_and_no_condition_without_a_table():
    on = "s.x = p.id AND s.k = g.id"
    assert [stage.name for stage in plan(on, names="psg").stages] == ["p-s-g~p", "p-s-g~g"]
    with pytest.raises(UsageError, match="within= is for a join of streams"):
        plan(on, names="psg", within="5 rows")
    with pytest.raises(
        PredicateError, match=r"the condition `s`.`x` > 3 reads none of them(.|\n)*filter s before"
    ):
        plan(f"{on} AND s.x > 3", names="psg", how="left")


def test_a_python_function_and_names_that_differ_in_case_only_are_refused():
    schemas = {"s": STREAM, "c": STREAM, "p": SCHEMAS["p"]}
    with pytest.raises(UsageError, match="a table is found by its key: give the predicate as text"):
        plan_chain(JoinOptions(on=lambda left, right: left), schemas, {"p": ("id",)}, SqlSettings())
    schemas = {"s": STREAM, "S": STREAM, "p": SCHEMAS["p"]}
    options = JoinOptions(on="s.k = S.k AND s.x = p.id")
    with pytest.raises(UsageError, match="the inputs s and S differ in letter case only"):
        plan_chain(options, schemas, {"p": ("id",)}, SqlSettings(case_sensitive=True))


def test_a_refusal_of_a_stage_speaks_of_the_users_columns_and_text():
    on = "s.k = c.k AND s.x + c.x = p.id"
    stage = plan(on, names="psc").stages[1]
    found = PredicateError("`joined`.`s:x` is wrong", str(stage.options.on), hint="cast joined.s:x")
    said = stage.in_users_words(found)
    assert (said.problem, said.text, said.hint) == ("s.x is wrong", on, "cast s.x")
