"""States of older formats are continued exactly, and what this version would misread is refused.

Samples are described in samples.py. Each is copied, and two more batches are run: their results must be the pairs of
all rows, old and new, but for those of old rows alone, which the old code gave out.
"""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests import life
from tests.formats.samples import (
    BEGAN_S,
    DELAY_S,
    HUB_FIRST,
    HUB_SINCE,
    HUB_TEXTS,
    QUERY,
    RUN,
    SAMPLES,
    WRITTEN,
    Sample,
    arriving,
    asked,
    hub_of,
    hub_rows,
    join_of,
    lookup_of,
    prices,
    write_hub,
)
from watersmeet.errors import CorruptFile, StateMismatch
from watersmeet.log.codec import checksum
from watersmeet.log.files import LocalFiles
from watersmeet.log.formats import OLDEST
from watersmeet.log.manifests import list_manifests, read_manifest
from watersmeet.log.names import ManifestName
from watersmeet.log.status import read_status
from watersmeet.model.facts import FORMAT, Manifest, SchemePlan
from watersmeet.schemes.biclique import BicliquePlan
from watersmeet.schemes.budget.facts import BudgetPlan
from watersmeet.schemes.delta.scheme import DeltaPlan
from watersmeet.schemes.grid.facts import GridPlan
from watersmeet.schemes.hash import HashPlan
from watersmeet.schemes.hypercube.facts import CubePlan
from watersmeet.schemes.hypercube.hot_keys import hot_keys_of
from watersmeet.schemes.range.facts import RangePlan
from watersmeet.schemes.table.facts import PagePlan

HERE = Path(__file__).parent
FORMATS = sorted(int(folder.name) for folder in HERE.iterdir() if folder.name.isdigit())
PLANS: dict[str, type[SchemePlan]] = {
    "hash": HashPlan,
    "hypercube": CubePlan,
    "biclique": BicliquePlan,
    "range": RangePlan,
    "grid": GridPlan,
    "window": CubePlan,
    "three": CubePlan,
    "path": DeltaPlan,
    "path-window": DeltaPlan,
    "triangle": DeltaPlan,
    "comparison": DeltaPlan,
    "budget": BudgetPlan,
}
# Up to this format an input that only an inequality joins to two or more others was stored in the order of arrival.
BY_ARRIVAL = 6
NEW = range(WRITTEN, WRITTEN + 2)


def test_there_are_samples_of_every_format_before_this_one():
    assert list(range(OLDEST, FORMAT)) == FORMATS


def copy(tmp_path: Path, written: int, name: str) -> Path:
    return Path(shutil.copytree(HERE / str(written) / name, tmp_path / "state"))


def manifests(state: Path) -> list[Manifest]:
    return life.manifests(life.files_of(state, query=QUERY))


def joined(sample: Sample, batches: range) -> Counter[tuple[int, ...]]:
    inputs = {
        side: pa.concat_tables(arriving(sample, side, batch) for batch in batches) for side in sample.inputs
    }
    given = ", ".join(sample.select), ", ".join(sample.inputs)
    return life.ask_duckdb(
        f"SELECT {given[0]} FROM {given[1]} WHERE ({sample.on}) AND {sample.near}", **inputs
    )


def came_out(sample: Sample, written: int, name: str) -> Counter[tuple[int, ...]]:
    """What the old code gave out: all pairs of its rows, or less under a budget."""
    if "memory" not in sample.how:
        return joined(sample, range(WRITTEN))
    found = Counter(tuple(row) for row in json.loads((HERE / str(written) / f"{name}.json").read_text()))
    assert found < joined(sample, range(WRITTEN)), "nothing is owed"
    return found


def newest(state: Path) -> Manifest:
    return manifests(state)[-1]


@pytest.mark.parametrize(
    ("written", "name"),
    [
        (written, name)
        for written in FORMATS
        for name in SAMPLES
        if SAMPLES[name].since <= written and (name != "comparison" or written > BY_ARRIVAL)
    ],
)
def test_a_state_of_an_older_format_is_continued(tmp_path, written, name):
    sample, state = SAMPLES[name], copy(tmp_path, written, name)
    before = manifests(state)
    assert [one.format for one in before] == [written] * WRITTEN
    assert all(isinstance(one.plan.scheme, PLANS[name]) for one in before)
    assert before[-1].signature.scheme == PLANS[name].kind
    assert bool(before[-1].merges) == sample.merges

    join = join_of(sample, state, WRITTEN, "run-1")
    found: Counter[tuple[int, ...]] = Counter()
    for batch in NEW:
        if join.memory is not None and batch == NEW[-1]:
            # A start without a budget pays what the old code owed, too.
            assert before[-1].pushes and newest(state).pushes
            join = life.restarted(join, memory=None)
        found += life.multiset(join.batch(**{side: arriving(sample, side, batch) for side in sample.inputs}))
        life.check_plan(join)
    assert found == joined(sample, range(NEW.stop)) - came_out(sample, written, name)
    assert found and not newest(state).pushes
    after = manifests(state)[WRITTEN:]
    assert [(one.batch.number, one.format) for one in after] == [(batch, FORMAT) for batch in NEW]
    assert after[0].batch.run == "run-1"
    rows = {side: sum(sample.rows[side][: NEW.stop]) for side in sample.inputs}
    assert {side: after[-1].totals[side].rows for side in sample.inputs} == rows
    # Parts of merges that the old code had done are used.
    assert not sample.merges or {run.path for run in after[0].history} != {
        run.path for run in before[-1].live
    }
    (status,) = read_status(state).joins
    assert not status.damage and status.shown is not None


@pytest.mark.parametrize("written", FORMATS)
def test_what_an_older_format_knows_of_heavy_keys_is_kept(tmp_path, written):
    state = copy(tmp_path, written, "hypercube")
    *_, last = manifests(state)
    plan = last.plan.scheme
    assert isinstance(plan, CubePlan) and plan.inputs == ("l", "r")
    # Since format 6 plans find other keys in samples too.
    [heavy] = [one for one in plan.heavy if one.label == "7"]
    assert len(heavy.rows) == len(heavy.shape) == 2
    assert plan.changes and plan.changes[0].before == () and len(plan.changes[0].after) == 2
    assert any(heavy.key in hot_keys_of(run).keys for run in last.live)
    join = join_of(SAMPLES["hypercube"], state, WRITTEN, "run-1")
    join.batch(l=arriving(SAMPLES["hypercube"], "l", WRITTEN))
    after = manifests(state)[-1].plan.scheme
    assert isinstance(after, CubePlan) and heavy.key in {one.key for one in after.heavy}
    assert after.epoch >= plan.epoch and after.changes[: len(plan.changes)] == plan.changes


@pytest.mark.parametrize("written", FORMATS)
def test_the_relocations_of_an_older_format_are_kept(tmp_path, written):
    plan = manifests(copy(tmp_path, written, "grid"))[-1].plan.scheme
    assert isinstance(plan, GridPlan) and plan.epoch == len(plan.relocations) == 1
    assert plan.relocations[0].event.after == plan.shapes


@pytest.mark.parametrize("written", FORMATS)
def test_rows_that_wait_since_an_older_format_are_joined_as_they_were_located(tmp_path, written):
    """Their pages are in the state. The table itself has changed since: the second batch sees it."""
    state, table = copy(tmp_path, written, "table"), tmp_path / "prices.parquet"
    plan = manifests(state)[-1].plan.scheme
    assert isinstance(plan, PagePlan) and plan.reading == "hybrid"
    assert plan.waiting_rows == sum(len(asked(batch)) for batch in range(WRITTEN))
    pq.write_table(prices(add=500), table)
    due_s = BEGAN_S + 2 * DELAY_S
    join = lookup_of(state, table, WRITTEN, "run-1", due_s)
    found = life.multiset(join.batch(s=asked(WRITTEN)))
    life.check_plan(join)
    located = pa.concat_tables(asked(batch) for batch in range(WRITTEN + 1))
    assert found == answers(located, add=100)
    assert not len(join.batch(s=asked(WRITTEN + 1))), "rows of the new table may wait again"
    later = lookup_of(state, table, WRITTEN + 2, "run-2", due_s + 2 * DELAY_S)
    assert life.multiset(later.batch(s=asked(WRITTEN + 2).slice(0, 0))) == answers(
        asked(WRITTEN + 1), add=500
    )
    assert [one.format for one in manifests(state)] == [written] * WRITTEN + [FORMAT] * 3


def answers(stream: pa.Table, add: int) -> Counter[tuple[int, int]]:
    keys, ids = stream["k"].to_pylist(), stream["id"].to_pylist()
    return Counter((row, key + add) for row, key in zip(ids, keys, strict=True))


def test_samples_name_no_place_of_the_machine_that_wrote_them():
    for path in HERE.glob("[0-9]*/**/*"):
        if path.is_file():
            assert not re.search(rb"/(tmp|home|root|work|Users|private)/", path.read_bytes()), path


# What is refused


def test_a_state_whose_inputs_are_stored_in_another_way_is_refused_with_what_to_do(tmp_path):
    sample, state = SAMPLES["comparison"], copy(tmp_path, BY_ARRIVAL, "comparison")
    join = join_of(sample, state, WRITTEN, "run-1")
    with pytest.raises(StateMismatch) as caught:
        join.batch(**{side: arriving(sample, side, WRITTEN) for side in sample.inputs})
    message = str(caught.value)
    assert "found as follows: a by k; b by k; c by reading all rows" in message
    assert "Now: a by k; b by k, or by the value of j; c by the value of k" in message
    assert "continue with that version" in message and "start with a new checkpoint" in message
    assert [one.format for one in manifests(state)] == [BY_ARRIVAL] * WRITTEN, "nothing was written"


def newest_body(tmp_path: Path) -> dict[str, Any]:
    """The newest manifest of a state in the present format, as JSON."""
    state = copy(tmp_path, FORMATS[-1], "hypercube")
    join_of(SAMPLES["hypercube"], state, WRITTEN, "run-1").batch(
        l=arriving(SAMPLES["hypercube"], "l", WRITTEN)
    )
    files = LocalFiles(state / "join" / QUERY)
    body: dict[str, Any] = json.loads(files.read(list_manifests(files)[-1].path).partition(b"\n")[2])
    return body


def written_as(body: Any, version: int) -> bytes:
    content = json.dumps(body).encode()
    sum_ = checksum(f"{version}\n".encode() + content)
    return json.dumps({"watersmeet": version, "bytes": len(content), "xxh3": sum_}).encode() + b"\n" + content


def decode(body: Any, place: Path, version: int = FORMAT) -> Manifest:
    name = ManifestName(0, 0, "m")
    (place / "manifests").mkdir(exist_ok=True)
    (place / name.path).write_bytes(written_as(body, version))
    return read_manifest(LocalFiles(place), name)


def test_a_manifest_is_read_as_it_was_written(tmp_path):
    body = newest_body(tmp_path)
    assert decode(body, tmp_path).batch.run == "run-1"


BASE = {"path": "bases/x.arrow", "bytes": 1, "of": {"run_seq": 0, "batch": 0, "run": "r"}, "runs": 1}

BROKEN: dict[str, tuple[Callable[[Any], Any], str]] = {
    "manifest": (lambda body: body.update(later=1), "the unknown field 'later' of Manifest"),
    "signature": (
        lambda body: body["signature"].update(later=[]),
        "the unknown field 'later' of JoinSignature",
    ),
    "run": (lambda body: body["added"].update(later=[]), "the unknown field 'later' of Run"),
    "base": (lambda body: body.update(base=BASE | {"later": 1}), "the unknown field 'later' of BaseRef"),
    "merge": (
        lambda body: body["merges"].append({"later": 1, "runs": [], "parts": {"count": 0, "output": []}}),
        "the unknown field 'later' of Merge",
    ),
    "plan": (lambda body: body["plan"].update(later=1), "the unknown field 'later' of Plan"),
    "scheme": (lambda body: body["plan"]["scheme"].update(later=1), "the unknown field 'later' of CubePlan"),
    "statistics": (
        lambda body: body["added"]["stats"][0].update(later=1),
        "the unknown field 'later' of HotKeys",
    ),
    "kind of plan": (
        lambda body: body["plan"]["scheme"].update(kind="triangle"),
        "a plan or statistics of the unknown kind 'triangle'",
    ),
    "plan without a kind": (
        lambda body: body["plan"]["scheme"].pop("kind"),
        "a plan or statistics of the unknown kind 'None'",
    ),
    "kind of statistics": (
        lambda body: body["added"]["stats"][0].update(kind="quantiles"),
        "a plan or statistics of the unknown kind 'quantiles'",
    ),
}


@pytest.mark.parametrize(("change", "words"), BROKEN.values(), ids=BROKEN)
def test_what_this_version_does_not_know_is_refused(tmp_path, change, words):
    body = newest_body(tmp_path)
    change(body)
    said = f"has {words}: a newer version of watersmeet wrote it. Install that"
    with pytest.raises(CorruptFile, match=re.escape(said)):
        decode(body, tmp_path)


@pytest.mark.parametrize("written", FORMATS)
def test_an_unknown_field_of_an_older_format_is_refused_too(tmp_path, written):
    path = next((HERE / str(written) / "hash").glob(f"join/*/manifests/*{RUN}.json"))
    body = json.loads(path.read_bytes().partition(b"\n")[2])
    assert decode(body, tmp_path, written).format == written
    with pytest.raises(CorruptFile, match="the unknown field 'later' of Manifest"):
        decode(body | {"later": 1}, tmp_path, written)


@pytest.mark.parametrize("version", range(1, OLDEST))
def test_formats_that_are_too_old_are_refused(tmp_path, version):
    said = f"has format {version}, but this version of watersmeet reads {OLDEST} to {FORMAT}: run one batch"
    with pytest.raises(CorruptFile, match=said):
        decode({}, tmp_path, version)


def hub_answers(batches: range) -> Counter[tuple[int, ...]]:
    """The answers of the queries of the hub over these batches, each with the place of its query."""
    found: Counter[tuple[int, ...]] = Counter()
    for place, (id_, text) in enumerate(HUB_TEXTS.items()):
        counted = range(HUB_FIRST[id_], batches.stop)
        rows = {side: pa.concat_tables(hub_rows(batch)[side] for batch in counted) for side in ("l", "r")}
        of_id = life.ask_duckdb(text, **rows)
        found += Counter({(place, *row): times for row, times in of_id.items()})
    return found


@pytest.mark.parametrize("written", [*(one for one in FORMATS if one >= HUB_SINCE), None])
def test_the_state_of_a_hub_is_continued(tmp_path, written):
    """None is the present format: the sample of the next change is written by this code."""
    state = tmp_path / "state"
    if written is None:
        write_hub(state)
    else:
        copy(tmp_path, written, "hub")
    hub, places = hub_of(state, WRITTEN, "run-1"), list(HUB_TEXTS)
    found: Counter[tuple[int, ...]] = Counter()
    for batch in NEW:
        for row in hub.batch(**hub_rows(batch)).to_pylist():
            assert row["event"] == "answer", "the queries are live already"
            found[(places.index(row["query"]), *json.loads(row["answer"]).values())] += 1
    assert found == hub_answers(range(NEW.stop)) - hub_answers(range(WRITTEN))
    assert {place for place, *_ in found} == {0, 1, 2}
