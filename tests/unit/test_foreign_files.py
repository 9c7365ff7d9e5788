"""Files and folders of others in a state: never read, never removed, and they stop nothing."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pyarrow as pa
import pytest

import watersmeet as wm
from tests import life
from tests.unit.log_helpers import commit, rows
from watersmeet.engine.kept_table import used_tables
from watersmeet.local.join import LocalJoin
from watersmeet.log import names
from watersmeet.log.clean import Cleaner
from watersmeet.log.files import LocalFiles, open_files
from watersmeet.log.manifests import list_manifests
from watersmeet.log.receipts import list_receipts, publish_receipt, read_receipt
from watersmeet.log.runs import write_run
from watersmeet.model.facts import Receipt
from watersmeet.tables.catalogue import TABLES, drop_tables
from watersmeet.tables.prepare import prepare
from watersmeet.tables.spec import table

ID = "0123456789abcdef" * 2
FOREIGN = (
    ".nfs0001",
    "_SUCCESS",
    ".DS_Store",
    "._000000-000000000000-run-a.json",
    "000000-000000000000-run-a.json~",
    "000000-000000000000-run a.json",
    "0000000000-p00000.arrow.bak",
    ".something.else",
    "notes.txt",
    "m.00000.json",
)
SCHEMA = pa.schema({"k": pa.int64(), "x": pa.int64()})


def plant(folder: Path) -> set[Path]:
    """Foreign files, old enough to be removed if they were ours."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in FOREIGN:
        (folder / name).write_bytes(b"foreign")
        os.utime(folder / name, (0, 0))
    return {folder / name for name in FOREIGN}


def test_a_clean_up_passes_over_what_is_not_ours(tmp_path):
    files = LocalFiles(tmp_path)
    named = write_run(files, "l", 0, "p00000", rows(1))
    orphan = write_run(files, "l", 0, "p00001", rows(2))
    commit(files, 0, "run-a", named)
    publish_receipt(files, Receipt("l-0-0-x", 0, ()), "a")
    foreign = set().union(
        *(plant(tmp_path / f) for f in ("runs/l", "runs/r", "receipts", "manifests", "starts"))
    )
    drafts = {
        tmp_path / "manifests" / f".000000-000000000001-run-a.json.{ID}",
        tmp_path / "receipts" / f".l-0-0-x.00000.a.json.{ID}",
        tmp_path / "starts" / f".000001.{ID}",
        tmp_path / "runs" / "l" / f"0000000000-p00002-{ID}.arrow",
    }
    for path in (*drafts, tmp_path / orphan.path, tmp_path / "receipts" / "l-0-0-x.00000.a.json"):
        path.touch()
        os.utime(path, (0, 0))
    manifest = commit(files, 1)

    cleaned = Cleaner(files).clean(manifest, retain=100, now_s=time.time())

    assert cleaned.runs == 2, "the orphan and the draft of a run"
    assert all(path.exists() for path in foreign)
    assert not any(path.exists() for path in drafts)
    assert list_receipts(files) == []
    assert [name.batch for name in list_manifests(files)] == [0, 1]


def test_foreign_receipts_are_not_read(tmp_path):
    files = LocalFiles(tmp_path)
    publish_receipt(files, Receipt("l-0-0-x", 0, ()), "a")
    plant(tmp_path / "receipts")
    assert [read_receipt(files, name).part for name in list_receipts(files)] == [0]


def test_a_query_goes_on_past_its_clean_ups(tmp_path):
    """Twice sixteen batches and a restart, with foreign files in every folder."""

    def fresh(number: int) -> pa.Table:
        return pa.table({"k": [number], "x": [number]}, schema=SCHEMA)

    join = LocalJoin({"l": SCHEMA, "r": SCHEMA}, on="l.k = r.k", select=["l.x"], state=str(tmp_path))
    join.batch(l=fresh(0), r=fresh(-1))
    root = tmp_path / "join" / "local"
    folders = [path for path in (tmp_path, *tmp_path.rglob("*")) if path.is_dir()]
    foreign = set().union(*(plant(folder) for folder in (*folders, root / "receipts")))
    found = [join.batch(l=fresh(number)).num_rows for number in range(1, 20)]
    join = life.restarted(join)
    found += [join.batch(l=fresh(number)).num_rows for number in range(20, 35)]
    assert found == [0] * 34
    assert join.batch(r=pa.table({"k": range(35), "x": range(35)}, schema=SCHEMA)).num_rows == 35
    assert all(path.exists() for path in foreign)


@pytest.mark.parametrize("name", ["lost+found", ".snapshot", "@eaDir", ".Trash-1000"])
def test_the_status_passes_over_foreign_folders(tmp_path, name, monkeypatch):
    LocalJoin({"l": SCHEMA, "r": SCHEMA}, on="l.k = r.k", state=str(tmp_path)).batch()
    for folder in (tmp_path / name, tmp_path / "join" / name):
        (folder / "manifests").mkdir(parents=True)
    real = LocalFiles.folders

    def guarded(files: LocalFiles) -> list[str]:
        if name in files.root.parts:
            raise PermissionError(13, "Permission denied")
        return real(files)

    monkeypatch.setattr(LocalFiles, "folders", guarded)
    assert [(one.name, one.query) for one in wm.status(str(tmp_path)).joins] == [("join", "local")]
    assert list(used_tables(open_files(tmp_path))) == []


def test_folders_and_files_of_others_stay_among_the_tables(tmp_path):
    import pyarrow.parquet as pq

    source = tmp_path / "in.parquet"
    pq.write_table(pa.table({"id": [2, 1]}), source)
    files = open_files(tmp_path / "state")
    made = prepare(table(str(source), "id"), files)
    foreign = plant(tmp_path / "state" / made.folder)
    foreign |= plant(tmp_path / "state" / TABLES / "lost+found")
    foreign |= plant(tmp_path / "state" / TABLES / ".snapshot")
    draft = tmp_path / "state" / made.folder / f".table.json.{ID}"
    draft.touch()
    os.utime(draft, (0, 0))
    prepare(table(str(source), "id"), files)
    assert not draft.exists()
    assert drop_tables(files, [made.folder], now_s=1e12) == []
    assert all(path.exists() for path in foreign)


@pytest.mark.parametrize(
    ("ours", "kind"),
    [
        ("000003-000000000017-6d9f1f0e-7f30.json", names.manifest_parts),
        ("1234567-1234567890123-batch.json", names.manifest_parts),
        ("000003", names.start_number),
        ("orders-0000000017-1-0123456789abcdef.00002.0123456789abcdef.json", names.receipt_part),
        ("f.1-0000000017-1-0123456789abcdef.00002.0123456789abcdef.json", names.receipt_part),
        ("~answered-0000000017-0123456789abcdef.00002.0123456789abcdef.json", names.receipt_part),
        ("0000000017-p00001-0000-0123456789abcdef.arrow", names.run_batch),
        ("0000000017-m00001-0123456789abcdef.arrow", names.run_batch),
    ],
)
def test_names_of_ours_are_known_and_so_are_their_drafts(ours, kind):
    assert kind(ours) is not None
    assert names.is_draft(names.draft_of(ours, ID), kind)
    for wrong in (f".{ours}", f"{ours}~", f"{ours} ", f" {ours}", f"{ours}.bak", f"._{ours}"):
        assert kind(wrong) is None
        assert not names.is_draft(wrong, kind)
