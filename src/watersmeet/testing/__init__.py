"""Tools to test your own joins: streams made from lists of batches, run to completion, compared.

from watersmeet.testing import StreamScript, assert_same_rows

def test_my_join(spark, tmp_path):
    with StreamScript(spark, tmp_path, l="k int, x int", r="k int, y int") as script:
        script.start(lambda l, r: wm.join({"l": l, "r": r}, on="l.k = r.k", select=["l.x", "r.y"],
                                          state=str(tmp_path / "state")))
        script.batch(l=[(1, 10), (2, 20)])
        script.batch(r=[(2, 5)])
        script.restart()
        script.batch(r=[(1, 7)])
        assert_same_rows(script.results(), [(20, 5), (10, 7)])
"""

from watersmeet.testing.compare import assert_same_rows, row_difference
from watersmeet.testing.script import StreamScript

__all__ = ["StreamScript", "assert_same_rows", "row_difference"]
