"""Every argument of a join is declared alike wherever it is a keyword."""

from __future__ import annotations

import functools
import inspect
from dataclasses import MISSING, fields

import pytest

import watersmeet as wm
from watersmeet.engine.options import JoinArguments, JoinOptions
from watersmeet.errors import UsageError
from watersmeet.local.join import LocalJoin
from watersmeet.testing import assert_same_rows

DEFAULTS = {field.name: field.default for field in fields(JoinOptions)}
KEYWORDS = {name: default for name, default in DEFAULTS.items() if name != "on"}


@pytest.mark.parametrize("verb", [wm.join, wm.sql])
def test_verbs_have_the_arguments_of_the_request(verb):
    parameters = inspect.signature(verb).parameters.values()
    keywords = {p.name: p.default for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY}
    here = KEYWORDS if verb is wm.join else {name: KEYWORDS[name] for name in KEYWORDS if name != "select"}
    assert keywords == here


def test_type_checkers_see_the_arguments_of_the_request():
    assert list(JoinArguments.__annotations__) == list(KEYWORDS)
    types = {field.name: field.type for field in fields(JoinOptions)}
    declared = {name: found.__forward_arg__ for name, found in JoinArguments.__annotations__.items()}
    assert declared == {name: types[name] for name in KEYWORDS}


def test_the_local_driver_has_the_arguments_of_the_request():
    local = {field.name: field.default for field in fields(LocalJoin)}
    own = {"on": MISSING, "state": MISSING, "name": "join", "tasks": 2}
    assert {name: local[name] for name in DEFAULTS if name != "options"} == {
        name: own.get(name, default) for name, default in DEFAULTS.items() if name != "options"
    }


@pytest.mark.parametrize("verb", [wm.explain, wm.owed, wm.settle])
def test_an_unknown_argument_is_named_as_the_users_mistake(verb):
    needed = {"checkpoint": "c", "to": "t"} if verb is wm.settle else {"checkpoint": "c"}
    with pytest.raises(TypeError) as failed:
        verb({}, on="a.k = b.k", **({} if verb is wm.explain else needed), wihtin="1 minute")
    said = f"{verb.__name__}() got an unexpected keyword argument 'wihtin'; did you mean within?"
    assert str(failed.value) == said


@pytest.mark.parametrize(
    "function", [lambda: True, lambda l: True, lambda l, r, s: True, lambda *, l, r: True]
)
def test_a_function_that_does_not_take_two_record_batches_is_refused(function):
    with pytest.raises(UsageError, match="does not take two arguments: it gets a record batch of each input"):
        JoinOptions(on=function)


@pytest.mark.parametrize(
    "function",
    [lambda l, r: True, lambda l, r, most=5: True, lambda *rows: True, functools.partial(pow, mod=2), max],
)
def test_a_function_that_may_take_two_is_not(function):
    JoinOptions(on=function)


def test_rows_that_differ_are_counted():
    with pytest.raises(AssertionError, match=r"^1 row missing:\n  1 x \(1, 3\)\n2 rows surplus:"):
        assert_same_rows([(1, 2), (1, 2)], [(1, 3)])
