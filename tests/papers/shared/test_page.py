"""Pictures and the page that holds them."""

from __future__ import annotations

import re
import sys

import pytest

from papers.shared.exhibit import Bars, Control, Exhibit, Lines, Series, Table, Verdict
from papers.shared.page import write_page
from papers.shared.plots import draw, require_matplotlib
from watersmeet.errors import UsageError


@pytest.fixture
def exhibit():
    lines = Lines("t", "x", "y", [Series("a", "DYNAMIC", [1, 2], [3, 4])], bound=3.5, bound_name="b")
    bars = Bars(
        "t", "y", ["g"], {"DYNAMIC": [2.0], "SHJ": [None]}, log_y=True, starred=frozenset({("g", "DYNAMIC")})
    )
    table = Table("rows <b>", ["a"], [["1 < 2"]])
    verdict = Verdict("x & y", "z", False, "why", controls=[Control("a <b> one", True, "told")])
    return Exhibit("one", "One: <i>", "how", [table], [verdict], [lines, bars])


def test_pictures_are_png_files_that_the_page_holds_inside(exhibit, tmp_path):
    paths = draw(exhibit, tmp_path)
    assert [path.name for path in paths] == ["one-1.png", "one-2.png"]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in paths)
    write_page(tmp_path / "page.html", "title & more", ["fact"], [exhibit], {"one": paths})
    page = (tmp_path / "page.html").read_text()
    assert page.count('src="data:image/png;base64,') == 2
    assert not re.search(r'(?:src|href)="(?!data:|#)', page)
    assert "1 &lt; 2" in page and "<b>" not in page and "x &amp; y" in page and "differs" in page
    assert "a &lt;b&gt; one agrees too: told" in page


def test_missing_matplotlib_is_named_with_the_command_that_installs_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(UsageError, match=re.escape("matplotlib, which is not installed: pip install")):
        require_matplotlib()
