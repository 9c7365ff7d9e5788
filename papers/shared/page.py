"""All exhibits on one HTML page that needs no other file: pictures are inside it."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

from papers.shared.exhibit import Exhibit, Table, Verdict

_STYLE = """
:root { --ink: #1b1f24; --soft: #57606a; --line: #d8dee4; --good: #0a6b3d; --bad: #9a3412; --paper: #ffffff; }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 68rem; padding: 2rem 1.25rem 4rem; background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", sans-serif; }
h1 { font-size: 1.7rem; line-height: 1.25; margin: 0 0 .4rem; }
h2 { font-size: 1.2rem; margin: 2.6rem 0 .2rem; padding-top: 1rem; border-top: 1px solid var(--line); }
h3 { font-size: .95rem; margin: 1.2rem 0 .3rem; }
p { margin: .3rem 0; } .soft { color: var(--soft); font-size: .9rem; }
nav { display: flex; flex-wrap: wrap; gap: .4rem; margin: 1.2rem 0; }
nav a { border: 1px solid var(--line); border-radius: 999px; padding: .1rem .7rem; font-size: .85rem;
  color: var(--ink); text-decoration: none; } nav a:hover { border-color: var(--ink); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .88rem; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .7rem; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
thead th { font-weight: 600; border-bottom: 2px solid var(--ink); }
.verdicts td, .verdicts th { text-align: left; white-space: normal; vertical-align: top; }
.agrees { color: var(--good); font-weight: 600; } .differs { color: var(--bad); font-weight: 600; }
.not { color: var(--soft); font-weight: 600; } .alike { color: var(--bad); }
.charts { display: flex; flex-wrap: wrap; gap: 1rem; margin: .8rem 0; }
.charts img { width: min(100%, 32rem); height: auto; border: 1px solid var(--line); border-radius: 6px; }
"""

_ALIKE = ' class="alike"'


def write_page(
    path: Path,
    title: str,
    facts: Sequence[str],
    exhibits: Sequence[Exhibit],
    images: Mapping[str, Sequence[Path]],
) -> None:
    """`images` are the pictures of each exhibit, by its name."""
    nav = "".join(f'<a href="#{e.name}">{escape(e.title.split(":")[0])}</a>' for e in exhibits)
    body = "".join(_section(exhibit, images.get(exhibit.name, ())) for exhibit in exhibits)
    lines = "".join(f'<p class="soft">{escape(fact)}</p>' for fact in facts)
    path.write_text(
        f'<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><title>{escape(title)}</title>'
        f"<style>{_STYLE}</style></head><body><h1>{escape(title)}</h1>{lines}<nav>{nav}</nav>{body}</body></html>\n",
        encoding="utf-8",
    )


def _section(exhibit: Exhibit, images: Sequence[Path]) -> str:
    pictures = "".join(
        f'<img alt="{escape(chart.title)}" src="data:image/png;base64,{base64.b64encode(path.read_bytes()).decode()}">'
        for chart, path in zip(exhibit.charts, images, strict=True)
    )
    return (
        f'<section id="{exhibit.name}"><h2>{escape(exhibit.title)}</h2><p class="soft">{escape(exhibit.how)}</p>'
        f'<div class="charts">{pictures}</div>{"".join(map(_table, exhibit.tables))}'
        f"{_verdicts(exhibit.verdicts)}</section>"
    )


def _table(table: Table) -> str:
    head = "".join(f"<th>{escape(column)}</th>" for column in table.columns)
    rows = "".join("<tr>" + "".join(f"<td>{escape(v)}</td>" for v in row) + "</tr>" for row in table.rows)
    note = f'<p class="soft">{escape(table.note)}</p>' if table.note else ""
    return (
        f'<h3>{escape(table.title)}</h3><div class="scroll"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>{note}"
    )


def _verdicts(verdicts: Sequence[Verdict]) -> str:
    rows = "".join(
        f'<tr><td>{escape(v.paper)}</td><td>{escape(v.ours)}</td><td class="{v.word.split()[0]}">{v.word}</td>'
        f"<td>{escape(v.why)}</td><td{_ALIKE if v.alike else ''}>{escape(v.control)}</td></tr>"
        for v in verdicts
    )
    return (
        '<div class="scroll"><table class="verdicts"><thead><tr><th>the paper</th><th>here</th><th></th>'
        f"<th>why</th><th>control</th></tr></thead><tbody>{rows}</tbody></table></div>"
    )
