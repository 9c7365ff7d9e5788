"""Another version of a table that is known by its folder in the state: how a task follows a table that changes."""

from __future__ import annotations

import dataclasses

from watersmeet.errors import TableError
from watersmeet.log.files import open_files
from watersmeet.tables.catalogue import find_facts
from watersmeet.tables.form import FORM, FormSource
from watersmeet.tables.in_place import PARQUET, ParquetSource
from watersmeet.tables.source import Source


def source_at(source: Source, folder: str, version: str) -> Source:
    """The same table as some folder has it.

    Files may be used in place in one version and from the sorted copy in another. A database has no rows in its folder, so neither
    it nor files can stand for the other.
    """
    if source.version == version:
        return source
    facts = find_facts(open_files(source.place, cache=source.cache), folder)
    # A folder that was removed and made anew has other pages under the same name.
    if facts is None or facts.version != version:
        raise TableError(
            f"version {version} of the table, which waiting rows were located in, is gone from {source.place}: "
            "restore its folder, or start with a new checkpoint"
        )
    if isinstance(source, FormSource | ParquetSource):
        if facts.kind == FORM:
            return FormSource(source.place, folder, version, source.origin, source.cache)
        if facts.kind == PARQUET and source.origin is not None:
            return ParquetSource(source.place, folder, version, source.origin, source.cache)
    elif facts.kind not in (FORM, PARQUET):
        return dataclasses.replace(source, folder=folder, version=version)  # type: ignore[type-var]
    raise TableError(
        f"rows still wait on {facts.label}, and the query was started with a table of another kind: start it once more "
        "with the earlier table until no row waits (`watersmeet status` counts them), or take a new checkpoint"
    )
