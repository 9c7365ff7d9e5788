"""What the runs of a hub tell of its load, for the choice of what is kept (hubs/keep_choice.py): rates, fan-outs, constants.

All of it follows from the runs of the batch and of the one before, so all planners find the same.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow.compute as pc

from watersmeet.engine.hub_rows import ReadRun
from watersmeet.hubs.catalogue import HubCatalogue
from watersmeet.hubs.constants import read_column
from watersmeet.hubs.keep import Choices, gain_expected, keeps_of, undecided, walks_to_choose
from watersmeet.hubs.keep_choice import HubLoad, choose_kept, due_templates
from watersmeet.hubs.lists import spread
from watersmeet.hubs.steps import Attribute, Attributes
from watersmeet.hubs.streams import HubStreams
from watersmeet.kernel.keys import Indices, Keys, order_keys
from watersmeet.kernel.rows import take_values
from watersmeet.model.facts import Run
from watersmeet.model.keep import Keep

# Values of an attribute that are looked up, and rows that are compared with constants. Enough to tell 1 % from none.
_SAMPLED_KEYS, _SAMPLED_ROWS = 128, 2_000
# Of the rows of a stream as many pass a comparison that is none of equality, as in System R.
_RANGE_SHARE = 1 / 3


@dataclass(frozen=True, slots=True)
class LoadRuns:
    """The runs of a batch and those of before, and how they are read."""

    fresh: Sequence[Run]
    stored: Sequence[Run]
    read: ReadRun
    keys_of: Callable[[Run], Keys]


def choices_of(catalogue: HubCatalogue, streams: HubStreams, batch: int, runs: LoadRuns) -> Choices:
    """What templates in force keep from the next batch on, as far as it is chosen in this one."""
    if streams.keep == Keep.NEVER:
        return dict.fromkeys(np.flatnonzero(keeps_of(catalogue)).tolist())
    came, walks = _first_batches(catalogue), walks_to_choose(catalogue)
    due = due_templates(came, walks, undecided(catalogue), batch, streams.keep)
    considered = {one: catalogue.parsed[one] for one in due.templates.tolist()}
    if not considered:
        return {}
    load = load_of(catalogue, streams.attributes, runs)
    return choose_kept(considered, load, streams.keep, gained=gain_expected(catalogue), share=due.share)


def load_of(catalogue: HubCatalogue, attributes: Attributes, runs: LoadRuns) -> HubLoad:
    """The load of a batch."""
    fresh, keys_of = runs.fresh, runs.keys_of
    rows: dict[str, float] = {}
    for run in fresh:
        if run.input in attributes.streams:
            rows[run.input] = rows.get(run.input, 0.0) + run.rows
    by_name: dict[str, list[Run]] = {}
    for run in (*runs.stored, *fresh):
        by_name.setdefault(run.input, []).append(run)
    now: dict[str, list[Run]] = {}
    for run in fresh:
        now.setdefault(run.input, []).append(run)

    @functools.cache
    def sample(name: str) -> Keys:
        keys = [keys_of(run) for run in now.get(name, ())]
        return _some(np.concatenate(keys), _SAMPLED_KEYS) if keys else np.zeros(0, np.uint64)

    @functools.cache
    def fan_out(value: Attribute, sought: Attribute) -> float:
        keys = sample(attributes.index_of(attributes.number[value]))
        if not len(keys):
            return 1.0
        found = 0
        for run in by_name.get(attributes.index_of(attributes.number[sought]), ()):
            stored_keys = keys_of(run)
            ends, begins = (np.searchsorted(stored_keys, keys, side=side) for side in ("right", "left"))
            found += int((ends - begins).sum())
        return max(found, 0.5) / len(keys)

    @functools.cache
    def values(attribute: Attribute) -> Keys:
        stream, column = attribute
        mine = now.get(stream, ())
        if not mine:
            return np.zeros(0, np.uint64)
        found = runs.read(mine[-1], (column,)).rows.column(column).slice(0, _SAMPLED_ROWS).drop_null()
        return order_keys([found]) if len(found) else np.zeros(0, np.uint64)

    constants = _Constants(catalogue, attributes)

    def passing(template: int, input_: int) -> float:
        found = 1.0
        one = catalogue.parsed[template]
        for compared in (each for each in one.filters if each.input == input_):
            attribute = one.streams[input_], compared.column
            if compared.op in ("=", "in"):
                keys = values(attribute)
                hits = np.isin(keys, constants.keys(template, attribute, compared.slots)).sum()
                found *= max(float(hits), 0.5) / max(1, len(keys))
            elif compared.op in ("<", "<=", ">", ">="):
                found *= _RANGE_SHARE
        return found

    return HubLoad(rows, fan_out, passing)


class _Constants:
    """The constants of the queries of a catalogue."""

    def __init__(self, catalogue: HubCatalogue, attributes: Attributes) -> None:
        self.attributes = attributes
        lists = catalogue.queries.column("constants")
        counts = pc.list_value_length(lists).fill_null(0).to_numpy().astype(np.int64)
        self.texts, self.first = lists.flatten(), np.cumsum(counts) - counts
        template = catalogue.queries.column("template").to_numpy()
        self.order = np.argsort(template, kind="stable")
        self.starts = np.searchsorted(template[self.order], np.arange(len(catalogue.parsed) + 1))

    def keys(self, template: int, attribute: Attribute, slots: Sequence[int]) -> Keys:
        """The order keys of the constants that all queries of a template compare an attribute with."""
        queries = self.order[self.starts[template] : self.starts[template + 1]]
        owner, _ = spread(np.zeros(len(queries), np.int64), np.full(len(queries), len(slots)))
        at = self.first[queries[owner]] + np.tile(np.array(slots, np.int64), len(queries))
        kind = self.attributes.types[self.attributes.number[attribute]]
        return order_keys([read_column(take_values(self.texts, at).unique(), kind)])


def _some(keys: Keys, most: int) -> Keys:
    """Some of many keys, evenly."""
    at: Indices = np.linspace(0, len(keys) - 1, min(most, len(keys))).astype(np.int64)
    return keys[at]


def _first_batches(catalogue: HubCatalogue) -> Indices:
    """The first batch in which each template was in force."""
    template, start = (catalogue.queries.column(name).to_numpy() for name in ("template", "start"))
    came = np.full(len(catalogue.parsed), np.iinfo(np.int64).max)
    np.minimum.at(came, template, start + 1)
    return came
