"""The guide's code blocks, run in order as a reader would run them."""

from __future__ import annotations

import re
from pathlib import Path

GUIDE = Path(__file__).parents[2] / "docs" / "guide.md"


def test_the_guide_runs_and_shows_what_it_promises(spark, tmp_path, capsys):
    text = GUIDE.read_text()
    program = "\n".join(re.findall(r"^```python\n(.*?)^```", text, re.S | re.M))
    # Our own page, not somebody's input.
    exec(compile(program, str(GUIDE), "exec"), {"spark": spark, "folder": str(tmp_path)})  # noqa: S102
    shown = capsys.readouterr().out
    promised = re.findall(r"^```text\n(.*?)^```", text, re.S | re.M)
    assert len(promised) == 2
    for words in promised:
        assert words in shown
