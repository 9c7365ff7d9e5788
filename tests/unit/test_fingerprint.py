"""Fingerprints of Python conditions: the same for the same code in every process, another for another behaviour."""

from __future__ import annotations

import functools
import logging
import subprocess
import sys
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from watersmeet.engine import fingerprint as module
from watersmeet.engine.fingerprint import changed_code, fingerprint, warn_if_code_changed
from watersmeet.engine.spec import Settings
from watersmeet.local.join import LocalJoin
from watersmeet.model.limits import Limits
from watersmeet.model.signature import Compared, JoinSignature

LIMIT = 5


def compiled(source: str, name: str = "f", **known: Any) -> Any:
    """A function from its text, as another start of a program would have it."""
    scope: dict[str, Any] = {"np": np, "__name__": "job", **known}
    exec(source, scope)  # noqa: S102
    return scope[name]


BASE = """
WIDTH = 3
CODES = ("a", "b")

def helper(l, r):
    return np.abs(l - r) < WIDTH

def f(l, r, most=7):
    near = helper(l, r)
    return [near & (l < most) for _ in range(2) if "x" in {"x", "y", "z"}]
"""


@pytest.mark.parametrize(
    "changed",
    [
        BASE.replace("near", "nearby"),
        BASE.replace("def f(", "# a comment\n\n\ndef f("),
        BASE.replace("    near =", '    """What it is for."""\n    near ='),
        BASE.replace('{"x", "y", "z"}', '{"z", "x", "y"}'),
        BASE + "\nOTHER = 9\n",
    ],
    ids=["a local name", "comments and lines", "a docstring", "the order of a set", "what it does not use"],
)
def test_what_does_not_matter(changed):
    assert fingerprint(compiled(changed)) == fingerprint(compiled(BASE))


@pytest.mark.parametrize(
    "changed",
    [
        BASE.replace("l < most", "l <= most"),
        BASE.replace("range(2)", "range(3)"),
        BASE.replace("most=7", "most=8"),
        BASE.replace("WIDTH = 3", "WIDTH = 4"),
        BASE.replace("np.abs", "np.sign"),
        BASE.replace("- r) <", "+ r) <"),
        BASE.replace('"z"}', '"w"}'),
    ],
    ids=["an operator", "a constant", "a default", "a global", "an attribute", "a helper", "a set"],
)
def test_what_matters(changed):
    assert fingerprint(compiled(changed)) != fingerprint(compiled(BASE))


class Near:
    def __init__(self, width: float):
        self.width = width

    def __call__(self, left: Any, right: Any) -> Any:
        return abs(left - right) < self.width

    def method(self, left: Any, right: Any) -> Any:
        return self(left, right)


def closing_over(value: Any) -> Any:
    return lambda left, right: left < value


def recursive(left: Any, right: Any) -> Any:
    return recursive(right, left) if left < right else mutual(left, right)


def mutual(left: Any, right: Any) -> Any:
    return recursive(left, right) if LIMIT else right


@pytest.mark.parametrize(
    "make",
    [Near, closing_over, lambda v: functools.partial(recursive, v), lambda v: Near(v).method],
    ids=["an object", "a closure", "a partial", "a method"],
)
def test_values_that_a_condition_carries_count(make):
    assert fingerprint(make(1.5)) == fingerprint(make(1.5)) != fingerprint(make(2.5))


def test_arrays_and_containers_count_by_their_content():
    for one, other in (
        ([1, [2]], [1, [3]]),
        ({"a": 1}, {"a": 2}),
        (np.arange(3), np.arange(4)),
        ({1, 2}, {1, 3}),
    ):
        copied = one.copy()
        assert fingerprint(closing_over(one)) == fingerprint(closing_over(copied))
        assert fingerprint(closing_over(one)) != fingerprint(closing_over(other))
    circle: list[Any] = [1]
    circle.append(circle)
    assert fingerprint(closing_over(circle))
    assert fingerprint(recursive) != fingerprint(mutual)


def test_functions_of_libraries_count_by_their_names():
    assert fingerprint(closing_over(np.abs)) != fingerprint(closing_over(np.sign))
    assert fingerprint(closing_over(len)) != fingerprint(closing_over(max))


def test_an_odd_object_has_no_fingerprint_and_does_no_harm():
    class Odd:
        def __getattribute__(self, name: str) -> Any:
            raise ValueError(name)

        def __call__(self, left: Any, right: Any) -> Any:
            return left

    assert fingerprint(Odd()) == ""


def test_whether_equal_constants_are_one_object_does_not_matter():
    shared = (1, "a")
    assert fingerprint(closing_over([shared, shared])) == fingerprint(
        closing_over([(1, "a"), (1, "".join("a"))])
    )


SHOWN = """
import functools, sys
import numpy as np
from tests.unit.test_fingerprint import BASE, Near, compiled, closing_over, recursive
from watersmeet.engine.fingerprint import fingerprint
values = [compiled(BASE), Near(1.5), closing_over({"a", "b", "c"}), recursive, functools.partial(recursive, {"x": {1, 2}})]
print([fingerprint(value) for value in values])
"""


def test_it_is_the_same_in_every_process_and_under_every_hash_seed():
    found = {
        subprocess.run(
            [sys.executable, "-c", SHOWN],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(filter(None, sys.path))},
            cwd=".",
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "77")
    }
    assert len(found) == 1


def signature(code: str, predicate: str = "callable job.f") -> JoinSignature:
    return JoinSignature((), predicate, (), Compared.ALL_PAIRS, code=code)


def test_only_what_can_be_compared_is():
    new = signature("3.11:aa")
    assert changed_code(signature("3.11:bb"), new)
    assert not changed_code(signature("3.11:aa"), new)
    assert not changed_code(signature("3.12:bb"), new)
    assert not changed_code(signature(""), new)
    assert not changed_code(signature("3.11:bb", "callable job.g"), new)


SCHEMA = pa.schema({"k": pa.int64()})


def joined(state: str, condition: Any, query: str = "local", **more: Any) -> LocalJoin:
    inputs = {"l": SCHEMA, "r": SCHEMA}
    return LocalJoin(inputs, on=condition, select=["l.k"], state=state, query=query, **more)


FIRST = "def f(l, r):\n    return np.asarray(l['k']) < np.asarray(r['k'])\n"


def test_a_changed_condition_is_a_warning_and_no_error(tmp_path, caplog):
    state = str(tmp_path)
    caplog.set_level(logging.WARNING, "watersmeet")
    joined(state, compiled(FIRST)).batch(l=pa.table({"k": [1, 2]}))
    again = joined(state, compiled("# the same\n" + FIRST))
    again.number = 1
    assert caplog.messages == []
    assert again.batch(r=pa.table({"k": [2]})).num_rows == 1
    changed = joined(state, compiled(FIRST.replace("<", "<=")))
    [message] = caplog.messages
    assert message.startswith("the code of the join condition job.f has changed since batch 1 of query local")
    assert "Start with a new checkpoint" in message
    changed.number = 2
    assert changed.batch(r=pa.table({"k": [2]})).num_rows == 2
    # From now on this is the code of the state.
    joined(state, compiled(FIRST.replace("<", "<=")))
    joined(state, compiled(FIRST), query="another")
    assert len(caplog.messages) == 1


def test_a_new_checkpoint_ends_the_warning(tmp_path, caplog):
    """As Spark asks, without the query's id: the last batch counts, not those of older checkpoints."""
    state, changed = str(tmp_path), compiled(FIRST.replace("<", "<="))
    caplog.set_level(logging.WARNING, "watersmeet")
    joined(state, compiled(FIRST), query="old", clock=lambda: 1_000.0).batch(l=pa.table({"k": [1]}))
    first = joined(state, changed, query="new", clock=lambda: 2_000.0)
    warn_if_code_changed(first.operator.spec)
    [message] = caplog.messages
    assert "since batch 0 of query old" in message
    first.batch(l=pa.table({"k": [1]}))
    warn_if_code_changed(joined(state, changed, query="new").operator.spec)
    assert len(caplog.messages) == 1
    # The old code is a change now.
    warn_if_code_changed(joined(state, compiled(FIRST), query="third").operator.spec)
    assert "since batch 0 of query new" in caplog.messages[-1]


def test_the_queries_that_are_looked_at_are_bounded(tmp_path, caplog, monkeypatch):
    state, changed = str(tmp_path), compiled(FIRST.replace("<", "<="))
    caplog.set_level(logging.WARNING, "watersmeet")
    for number in range(3):
        joined(state, compiled(FIRST), query=f"q{number}").batch(l=pa.table({"k": [1]}))
    listed = []
    specs = {
        most: joined(
            state,
            changed,
            query="new",
            settings=Settings(state=state, tasks=2, limits=Limits(most_queries=most)),
        ).operator.spec
        for most in (3, 2)
    }
    monkeypatch.setattr(module, "list_manifests", lambda files: listed.append(files) or [])
    warn_if_code_changed(specs[3])
    assert len(listed) == 3
    warn_if_code_changed(specs[2])
    assert len(listed) == 3
    assert caplog.messages == []
