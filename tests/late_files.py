"""A directory whose listings are late, as those of an NFS client are: opening a file by its name is always right."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from watersmeet.log.storage import FileInfo, Files


@dataclass
class Listings:
    """What a client remembers of folders: a listing stays as it was first read until `fresh()` says otherwise."""

    fresh: Callable[[], bool] = lambda: False
    # Names of folders whose listings are up to date all the same.
    prompt: tuple[str, ...] = ()
    seen: dict[tuple[str, str], list[Any]] = field(default_factory=dict)

    def look(self, key: tuple[str, str], read: Callable[[], list[Any]]) -> list[Any]:
        """What a listing shows. The key is its kind, `entries` or `folders`, and the real path of the folder."""
        if os.path.basename(key[1]) in self.prompt:
            return read()
        if key not in self.seen or self.fresh():
            self.seen[key] = read()
        return self.seen[key]

    def changed_here(self, folder: str) -> None:
        """This client has written to the folder, or removed a file from it. That does not make its listing fresh."""


class LateFiles:
    """`files`, listed as `listings` say."""

    def __init__(self, files: Files, listings: Listings | None = None):
        self._files = files
        self._listings = Listings() if listings is None else listings

    def __getattr__(self, name: str) -> Any:
        """All but listings as they are."""
        return getattr(self._files, name)

    def under(self, *parts: str) -> LateFiles:
        return LateFiles(self._files.under(*parts), self._listings)

    def entries(self, folder: str) -> list[FileInfo]:
        return self._listings.look(("entries", self._real(folder)), lambda: list(self._files.entries(folder)))

    def folders(self) -> list[str]:
        return self._listings.look(("folders", self._real("")), lambda: list(self._files.folders()))

    def publish(self, path: str, content: bytes) -> bool:
        created = self._files.publish(path, content)
        self._changed(path)
        return created

    def write(self, stem: str, *rest: Any) -> Any:
        stored = self._files.write(stem, *rest)
        self._changed(stored.path)
        return stored

    def delete(self, path: str) -> None:
        self._files.delete(path)
        self._changed(path)

    def delete_many(self, paths: Sequence[str]) -> Iterator[Sequence[str]]:
        for gone in self._files.delete_many(paths):
            for path in gone:
                self._changed(path)
            yield gone

    def _changed(self, path: str) -> None:
        self._listings.changed_here(self._real(os.path.dirname(path)))

    def _real(self, folder: str) -> str:
        return os.path.realpath(f"{self._files.place}/{folder}")
