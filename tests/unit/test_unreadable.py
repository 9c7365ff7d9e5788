"""A state directory on a disk, or an object store, that fails: every call says which file it was, and what to do."""

from __future__ import annotations

import builtins
import errno
import os
import re
import traceback

import pyarrow as pa
import pytest

from watersmeet.errors import StateError
from watersmeet.log.cache import open_cache
from watersmeet.log.files import LocalFiles
from watersmeet.log.objects import Objects
from watersmeet.log.remote import RemoteFiles
from watersmeet.log.storage import Storage

CALLS = {
    "read": (builtins, "open", lambda files: files.read("manifests/a")),
    "map": (pa, "memory_map", lambda files: files.map("manifests/a")),
    "entries": (os, "scandir", lambda files: files.entries("manifests")),
    "folders": (os, "scandir", lambda files: files.folders()),
    "delete": (os, "unlink", lambda files: files.delete("manifests/a")),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_failing_disk_is_named(tmp_path, monkeypatch, name):
    files = LocalFiles(tmp_path)
    files.publish("manifests/a", b"content")
    module, attribute, call = CALLS[name]

    def fail(*args, **kwargs):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(module, attribute, fail)
        with pytest.raises(StateError, match=re.escape(str(tmp_path))) as refused:
            call(files)
    assert "Input/output error" in str(refused.value)
    assert "start the query again" in str(refused.value)


class Silent:
    """An object store that does not answer. Arrow says so after a minute and a half of trying."""

    def __getattr__(self, name: str):
        raise OSError("AWS Error NETWORK_CONNECTION: curlCode: 28, Timeout was reached, tried with hunter22")


@pytest.mark.parametrize(
    ("said", "call"),
    [
        ("cannot list manifests in", lambda files: files.entries("manifests")),
        ("cannot list the folders of", lambda files: files.folders()),
        ("cannot look for manifests/a in", lambda files: files.exists("manifests/a")),
        ("cannot remove old from", lambda files: files.delete_folder("old")),
    ],
)
def test_an_object_store_that_does_not_answer_is_named(tmp_path, said, call):
    storage = Storage("s3://AKIAWATER:hunter22@bucket/state")
    files = RemoteFiles(storage, Silent(), "state", Objects(storage.uri), open_cache(str(tmp_path), None))
    with pytest.raises(StateError) as refused:
        call(files)
    text = str(refused.value)
    assert text.startswith(f"{said} the state in s3://***@bucket/state: AWS Error NETWORK_CONNECTION")
    assert "start the query again when the storage can be reached" in text
    assert "hunter22" not in "".join(traceback.format_exception(refused.value))


def test_a_missing_file_is_for_the_caller_to_judge(tmp_path):
    files = LocalFiles(tmp_path)
    with pytest.raises(FileNotFoundError):
        files.read("manifests/a")
    with pytest.raises(FileNotFoundError):
        files.map("manifests/a")
    assert files.entries("manifests") == files.under("nothing").folders() == []
    files.delete("manifests/a")
