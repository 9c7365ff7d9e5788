"""Figure 2: what it brings to ask for rates, against random, first and worst choices."""

from __future__ import annotations

from collections.abc import Callable

from papers.rjoin import paper
from papers.rjoin.cases import FIG2_RULES, Runs, Size, fig2_cases, no_history, without_tables
from papers.rjoin.sim.cases import FIRST, HISTORY, RANDOM, RANDOM_TRIPLE, RATE, WORST, Found, Snapshot
from papers.rjoin.views import HOW, LOADS, hits, spread_chart, stored
from papers.shared.exhibit import Control, Exhibit, Lines, Series, Table, Verdict

# A number of the text is met within this share of it: it was read off a picture, with other rows.
NEAR = 0.25
# "Significantly less": at least this many times less. "Small": no more than this share.
SIGNIFICANT, SMALL = 1.5, 0.25
# "Low": in the end a rewritten query costs fewer messages of requests than the one that carries it.
LOW = 1.0

Found2 = dict[str, Found]
Ratio = Callable[[Snapshot], float]


def fig2(runs: Runs, size: Size) -> Exhibit:
    found = {rule: runs[case] for rule, case in fig2_cases(size).items()}
    own = {rule: runs[case] for rule, case in fig2_cases(size, own_ranks=True).items()}
    blind = runs[no_history(size)]
    tableless = runs[without_tables(fig2_cases(size)[RATE])]
    return Exhibit(
        "fig2",
        "Figure 2: what rates are good for",
        f"{HOW} Messages are all since the start, indexing the queries included. Before the queries came {HISTORY:,} tuples, so that nodes "
        "have rates to tell. Random: of all candidates of section 6; random triple: of triples alone for rewritten queries, as section "
        "3 has it; first: the first triple or pair of the where clause. These do not pay for requests, nor does worst.",
        [
            _messages_table("messages per node", found),
            _messages_table("messages per node, each attribute with frequent values of its own", own),
            _loads_table(found),
            _history_table(found[RATE], blind),
        ],
        [
            *(_random_verdict(found, own, rule, reading) for rule, reading in _READINGS.items()),
            _worst_verdict(found, own),
            _requests_verdict(found),
            _rest_verdict(found),
            _cheap_verdict(found[RATE], tableless),
            _less_verdict(found, "query processing load", hits),
            _less_verdict(found, "storage load", stored),
        ],
        [
            _chart(found),
            spread_chart("2b: query processing load", "hits", [(r, r, found[r].last.hits) for r in FIG2_RULES]),
            spread_chart("2c: storage load", "items stored", [(r, r, found[r].last.storage) for r in FIG2_RULES]),
        ],
    )  # fmt: skip


_READINGS = {
    RANDOM: "of all candidates of section 6",
    RANDOM_TRIPLE: "of triples alone for rewritten queries, as in section 3",
}


def _times(
    found: Found2, rule: str, other: str = RATE, number: Ratio = lambda one: one.messages
) -> list[float]:
    """How many times as much as another strategy, at each snapshot."""
    pairs = zip(found[rule].snapshots, found[other].snapshots, strict=True)
    return [number(one) / number(two) for one, two in pairs]


def _by_tuples(found: Found, values: list[float], form: str = "{:.1f}") -> str:
    told = (f"{form.format(v)} after {one.tuples}" for v, one in zip(values, found.snapshots, strict=True))
    return f"{', '.join(told)} tuples"


def _messages_table(title: str, found: Found2) -> Table:
    rows = []
    for place, one in enumerate(found[RATE].snapshots):
        nodes = len(one.hits)
        sent = {rule: found[rule].snapshots[place].messages for rule in FIG2_RULES}
        rows.append(
            [
                f"{one.tuples}",
                f"{sent[RATE] / nodes:,.0f}",
                f"{one.ric_messages / nodes:,.0f}",
                *(f"{sent[rule] / nodes:,.0f}" for rule in FIG2_RULES[1:]),
                *(f"{sent[rule] / sent[RATE]:.1f}" for rule in (RANDOM, RANDOM_TRIPLE, WORST)),
            ]
        )
    return Table(
        title,
        [
            "tuples",
            RATE,
            "its requests",
            *FIG2_RULES[1:],
            *(f"{rule} / {RATE}" for rule in (RANDOM, RANDOM_TRIPLE, WORST)),
        ],
        rows,
    )


def _loads_table(found: Found2) -> Table:
    rows = [
        [
            rule,
            f"{hits(one):,.0f}",
            f"{one.fullest:,}",
            f"{one.working:,}",
            f"{stored(one):,.0f}",
            f"{one.alone:,}",
            f"{one.answers:,}",
        ]
        for rule, one in ((rule, found[rule].last) for rule in FIG2_RULES)
    ]
    columns = [
        "choices",
        "hits",
        "fullest node",
        "nodes hit",
        "stored",
        "messages of queries alone",
        "answers",
    ]
    return Table(f"loads after {found[RATE].last.tuples} tuples", columns, rows, note=LOADS)


def _history_table(rate: Found, blind: Found) -> Table:
    rows = [
        [f"{one.tuples}", f"{one.messages:,}", f"{two.messages:,}", f"{hits(one):,.0f}", f"{hits(two):,.0f}"]
        for one, two in zip(rate.snapshots, blind.snapshots, strict=True)
    ]
    return Table(
        "RJoin without tuples before the queries: all rates are 0 when the queries come",
        ["tuples", "messages", "messages without", "hits", "hits without"],
        rows,
    )


def _random_verdict(found: Found2, own: Found2, rule: str, reading: str) -> Verdict:
    low, high = paper.RANDOM_TIMES
    times, firsts = _times(found, rule), _times(found, rule, FIRST)
    agrees = _is_near(times[-1])
    return Verdict(
        f"RJoin is {low} to {high} times cheaper than random choices, read as a choice {reading}",
        f"{_by_tuples(found[RATE], times)}; where attributes have frequent values of their own "
        f"{_by_tuples(own[RATE], _times(own, rule))}. Judged at the end",
        agrees,
        ""
        if agrees
        else "requests are paid early, rewritten queries later, so that the factor grows with the tuples; at the end it is "
        + (
            "larger than said: a random pair meets every tuple of a relation"
            if times[-1] > high
            else "still smaller than said"
        ),
        controls=[
            Control(
                "the first of the where clause in RJoin's place",
                _is_near(firsts[-1]),
                _by_tuples(found[RATE], firsts),
            )
        ],
    )


def _is_near(times: float) -> bool:
    low, high = paper.RANDOM_TIMES
    return low * (1 - NEAR) <= times <= high * (1 + NEAR)


def _worst_verdict(found: Found2, own: Found2) -> Verdict:
    low, high = paper.WORST_TIMES
    times, others = _times(found, WORST), _times(found, WORST, RANDOM_TRIPLE)
    return Verdict(
        "the worst choices cost one to two orders of magnitude more than RJoin",
        f"{_by_tuples(found[RATE], times)}; where attributes have frequent values of their own "
        f"{_by_tuples(own[RATE], _times(own, WORST))}. Judged at the end",
        low <= times[-1] <= high,
        controls=[
            Control(
                "random triples in RJoin's place",
                low <= others[-1] <= high,
                _by_tuples(found[RATE], others),
            )
        ],
    )


def _requests_verdict(found: Found2) -> Verdict:
    shares = [one.ric_messages / one.messages for one in found[RATE].snapshots]
    return Verdict(
        "most of RJoin's traffic are requests for rates",
        f"their share: {_by_tuples(found[RATE], shares, '{:.0%}')}",
        min(shares) > 0.5,
        "" if min(shares) > 0.5 else "later tuples rewrite more queries, for which the rates are known",
        controls=[Control("random choices", False, "there are none")],
    )


def _rest_verdict(found: Found2) -> Verdict:
    def share(rule: str) -> list[float]:
        return [one.query_messages / one.messages for one in found[rule].snapshots]

    agrees = max(share(RATE)) <= SMALL
    return Verdict(
        "the cost of indexing queries itself is small",
        f"its share of all messages: {_by_tuples(found[RATE], share(RATE), '{:.0%}')}",
        agrees,
        ""
        if agrees
        else "at the paper's sizes a tuple rewrites more queries the more have come; each takes one hop, and requests are no longer needed",
        controls=[
            Control(
                "random triples", max(share(RANDOM_TRIPLE)) <= SMALL, _by_tuples(found[RATE], share(RANDOM_TRIPLE), "{:.0%}")
            )
        ],
    )  # fmt: skip


def _cheap_verdict(rate: Found, tableless: Found) -> Verdict:
    def each(found: Found) -> list[float]:
        """Requests for each rewritten query."""
        return [one.ric_per_tuple * one.tuples / (hits(one) - 20 * one.tuples) for one in found.snapshots]

    return Verdict(
        "rates that queries carry along keep the cost of requests low as more tuples arrive",
        f"messages of requests for a rewritten query: {_by_tuples(rate, each(rate), '{:.2f}')}",
        each(rate)[-1] < LOW,
        "" if each(rate)[-1] < LOW else "most rewritten queries still lead to keys that nobody has asked for",
        controls=[
            Control(
                "nodes without candidate tables, which ask every time,",
                each(tableless)[-1] < LOW,
                _by_tuples(tableless, each(tableless), "{:.2f}"),
            )
        ],
    )


def _less_verdict(found: Found2, what: str, number: Ratio) -> Verdict:
    times = _times(found, RANDOM_TRIPLE, RATE, number)
    wide = _times(found, RANDOM, RATE, number)
    firsts = _times(found, RANDOM_TRIPLE, FIRST, number)
    return Verdict(
        f"RJoin makes significantly less {what} than random choices",
        f"random triples make {_by_tuples(found[RATE], times)} times as much, random ones of all candidates {_by_tuples(found[RATE], wide)}. Judged at the end",
        times[-1] >= SIGNIFICANT,
        "" if times[-1] >= SIGNIFICANT else "few queries have been rewritten twice yet",
        controls=[
            Control(
                "the first of the where clause in RJoin's place", firsts[-1] >= SIGNIFICANT, _by_tuples(found[RATE], firsts)
            )
        ],
    )  # fmt: skip


def _chart(found: Found2) -> Lines:
    x = [one.tuples for one in found[RATE].snapshots]

    def per_node(rule: str) -> list[float]:
        return [one.messages / len(one.hits) for one in found[rule].snapshots]

    requests = [one.ric_messages / len(one.hits) for one in found[RATE].snapshots]
    return Lines(
        "2a: traffic, indexing the queries included",
        "tuples (log)",
        "messages per node (log)",
        [
            *(Series(rule, rule, x, per_node(rule)) for rule in FIG2_RULES),
            Series("RJoin's requests", "requests", x, requests),
        ],
        log_x=True,
        log_y=True,
        ticks=x,
        tick_names=[str(tuples) for tuples in x],
    )
