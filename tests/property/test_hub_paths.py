"""The paths of all templates together are those of each template by itself, and plain conditions need no parser."""

from __future__ import annotations

from dataclasses import replace
from unittest import mock

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.property.hub_helpers import STORED, STREAMS, queries
from tests.property.hub_ways import Check, HubStep, Way, ways_of
from watersmeet.errors import PredicateError
from watersmeet.hubs.catalogue import ADD, Command, HubCatalogue, apply_commands
from watersmeet.hubs.language import _HubReader
from watersmeet.hubs.paths import OPS, Paths, Shapes, paths_of
from watersmeet.hubs.steps import Attributes
from watersmeet.hubs.templates import TemplateReader
from watersmeet.model.types import type_of_arrow

SCHEMAS = {name: {field.name: type_of_arrow(field.type) for field in STORED} for name in STREAMS}
ATTRIBUTES = Attributes.of(SCHEMAS)


def steps_of(paths: Paths, shapes: Shapes, template: int, start: int) -> Way:
    """A path as it is written down for one template."""
    inputs, found = [], []
    for depth in range(int(shapes.inputs[template])):
        node = paths.node[template, start, depth]
        _, checks = paths.checks.members(np.array([node]))
        _, compared = shapes.compared.members(paths.compared[[node]])
        found.append(
            HubStep(
                int(paths.stream[node]),
                int(paths.value_depth[node]),
                int(paths.value[node]),
                int(paths.attribute[node]),
                bool(paths.old[node]),
                tuple(
                    Check(
                        int(paths.check_depth[one]), int(paths.check_left[one]), int(paths.check_right[one])
                    )
                    for one in checks
                ),
                tuple(
                    (
                        int(shapes.compared_attribute[one]),
                        OPS[shapes.compared_op[one]],
                        int(shapes.slots.counts(np.array([one]))[0]),
                    )
                    for one in compared
                ),
            )
        )
        inputs.append(int(paths.input[template, start, depth]))
    return Way(tuple(inputs), tuple(found))


def sorted_tests(way: Way) -> Way:
    """Comparisons with constants may be in any order that is the same for all templates."""
    return replace(way, steps=tuple(replace(step, tests=tuple(sorted(step.tests))) for step in way.steps))


@given(st.lists(queries(most=5), min_size=1, max_size=6))
def test_paths_of_all_templates_are_those_of_each(texts):
    commands = [Command(ADD, f"q{at}", text) for at, text in enumerate(texts)]
    catalogue = apply_commands(HubCatalogue(), commands, 0, TemplateReader(SCHEMAS)).catalogue
    shapes = Shapes.of(catalogue.templates, ATTRIBUTES)
    paths = paths_of(shapes, ATTRIBUTES)
    nodes: dict[tuple[HubStep, ...], int] = {}
    for number, template in enumerate(catalogue.parsed):
        for start, alone in enumerate(ways_of(template, ATTRIBUTES)):
            way = sorted_tests(alone)
            assert sorted_tests(steps_of(paths, shapes, number, start)) == way
            for depth in range(len(way.steps)):
                # Paths share a node as long as their steps are the same, and no longer.
                node = int(paths.node[number, start, depth])
                assert nodes.setdefault(way.steps[: depth + 1], node) == node
    assert sorted(nodes.values()) == list(range(len(paths.stream)))


_SIDES = st.sampled_from(
    ["R.a", "S.b", "s.A", "T.a", "R.at", "R.c", "S.c", "`S`.`b`", "R.nothing", "1", "R", "R.a.b", "NULL"]
)
_JOINED = st.tuples(_SIDES, st.sampled_from(["=", "=", "=", "<", "<=>"]), _SIDES).map(" ".join)


@given(
    st.lists(_JOINED, min_size=1, max_size=4),
    st.sampled_from([" AND ", " AND ", " and ", " OR ", " AND NOT "]),
    st.booleans(),
)
def test_a_plain_condition_means_what_the_parser_reads(conditions, word, case_sensitive):
    text = f"SELECT R.a FROM R, S WHERE {word.join(conditions)}"
    found = []
    for plain in (_HubReader.plain_equalities, lambda *_: None):
        with mock.patch.object(_HubReader, "plain_equalities", plain):
            try:
                found.append(TemplateReader(SCHEMAS, case_sensitive=case_sensitive).read(text))
            except PredicateError as error:
                found.append(str(error))
    assert found[0] == found[1]
