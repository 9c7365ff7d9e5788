"""A state directory on a disk that fails: every call says which file it was, and what to do."""

from __future__ import annotations

import builtins
import errno
import os
import re

import pyarrow as pa
import pytest

from watersmeet.errors import StateError
from watersmeet.log.files import LocalFiles

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


def test_a_missing_file_is_for_the_caller_to_judge(tmp_path):
    files = LocalFiles(tmp_path)
    with pytest.raises(FileNotFoundError):
        files.read("manifests/a")
    with pytest.raises(FileNotFoundError):
        files.map("manifests/a")
    assert files.entries("manifests") == files.under("nothing").folders() == []
    files.delete("manifests/a")
