"""Figure 3: how often pages are asked for, by their place in the relation."""

from __future__ import annotations

from papers.hybrid import paper
from papers.hybrid.cases import Size
from papers.hybrid.rates import megabytes, million
from papers.hybrid.results import HYBRIDJOIN, INLJ, MESHJOIN, Measured
from papers.shared.exhibit import Control, Exhibit, Lines, Series, Table, Verdict

# A reading is a whole turn over the relation, so that MESHJOIN reads every page as often as any other.
SAME = 1.1


def fig3(measured: Measured, size: Size) -> Exhibit:
    use = measured.use
    assert use is not None
    hybrid, mesh = use.reads[HYBRIDJOIN], use.reads[MESHJOIN]
    return Exhibit(
        "fig3",
        "Figure 3: use of pages by their place in the relation",
        f"{size.use_pages:,} pages of {size.rows // size.use_pages} rows, in order of their keys, which is that of their sales; segments "
        f"of {paper.SEGMENT_PAGES} pages. Both algorithms with {megabytes(size.budget_bytes)} on the same stream, "
        f"{million(size.rows)} rows of relation.",
        [
            Table(
                "for each page and a million rows of the stream",
                ["segment begins at page", "rows that ask for it", "by the law", "reads HYBRIDJOIN", "reads MESHJOIN"],
                [
                    [f"{page:,}", f"{rows:,.1f}", f"{exact:,.1f}", f"{h:.3f}", f"{m:.3f}"]
                    for page, rows, exact, h, m in zip(
                        use.first_page, use.rows, use.exact, hybrid, mesh, strict=True
                    )
                ],
                "Reads: in one turn over the relation, as means over ten segments.",
            )
        ],
        [
            Verdict(
                "the rate of page use decreases towards the end of R",
                f"{use.rows[0]:,.0f} rows for a page in the first segment, {use.rows[len(use.rows) // 2]:,.1f} at page "
                f"{use.first_page[len(use.rows) // 2]:,}, {use.rows[-1]:.1f} in the last",
                all(a > b for a, b in zip(use.exact, use.exact[1:], strict=False))
                and use.rows[0] > use.rows[len(use.rows) // 2] > use.rows[-1],
                controls=[Control("any algorithm", True, "the stream decides which pages are asked for")],
            ),
            Verdict(
                "MESHJOIN reads all pages with the same frequency",
                f"{min(mesh):.2f} to {max(mesh):.2f} reads of a page in a million rows",
                max(mesh) <= min(mesh) * SAME,
                controls=[
                    Control(HYBRIDJOIN, max(hybrid) <= min(hybrid) * SAME, f"{min(hybrid):.2f} to {max(hybrid):.2f}")
                ],
            ),
            Verdict(
                "HYBRIDJOIN does not read all pages with the same frequency, and none more often than MESHJOIN (Theorem 1)",
                f"{hybrid[0]:.2f} reads of a page at the beginning, {hybrid[-1]:.2f} at the end, MESHJOIN {mesh[0]:.2f}",
                max(hybrid) <= max(mesh) and hybrid[-1] * SAME < hybrid[0],
                controls=[
                    Control(
                        INLJ,
                        max(use.rows) <= max(mesh) and use.rows[-1] * SAME < use.rows[0],
                        f"a read for each row, {use.rows[0]:,.0f} of a page at the beginning, {use.rows[-1]:.1f} at the end",
                    ),
                    Control(MESHJOIN, mesh[-1] * SAME < mesh[0], f"{mesh[0]:.2f} and {mesh[-1]:.2f}"),
                ],
            ),
            Verdict(
                "every page that HYBRIDJOIN reads is used for at least one row, which MESHJOIN does not guarantee",
                f"reads that answered no row: {use.unused[HYBRIDJOIN]:.1%} of HYBRIDJOIN, {use.unused[MESHJOIN]:.1%} of MESHJOIN",
                use.unused[HYBRIDJOIN] == 0,
                controls=[
                    Control(INLJ, True, "a page is read for a row that it holds"),
                    Control(MESHJOIN, use.unused[MESHJOIN] == 0, f"{use.unused[MESHJOIN]:.1%}"),
                ],
            ),
        ],
        [
            Lines(
                "3: rows that ask for a page",
                "page (log)",
                "rows for each page and million rows (log)",
                [
                    Series("measured", "HYBRIDJOIN", [p + 1 for p in use.first_page], use.rows),
                    Series("by the law", "law", [p + 1 for p in use.first_page], use.exact, dashed=True),
                ],
                log_x=True,
                log_y=True,
            ),
            Lines(
                "3: reads of a page",
                "page",
                "reads in a million rows of the stream",
                [
                    Series(HYBRIDJOIN, HYBRIDJOIN, use.first_page, hybrid),
                    Series(MESHJOIN, MESHJOIN, use.first_page, mesh),
                ],
            ),
        ],
    )  # fmt: skip
