"""The text of a query to the parts of a join: which inputs under which names, the condition, the output columns.

    SELECT items FROM source [[AS] alias] {, source | [INNER] JOIN source {ON condition | USING (columns)}}
        [WHERE condition]

That is all that a query may say: anything else is refused at its place in the text. Conditions and items are read by
the same lexer, grammar and rules as `on=` and `select=`. They become one condition and one list of items, so a query is
the same join as the call with these arguments.

As in Spark, ON and USING see the inputs up to their own, also those before a comma (its setting
`spark.sql.ansi.relationPrecedence` is not looked at), and WHERE sees all. USING puts its columns first. Where it could
mean several columns Spark takes the first; it is refused here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from watersmeet.errors import PredicateError
from watersmeet.model.types import Schema
from watersmeet.predicate.build import Scope, make_scope, same_names
from watersmeet.predicate.lex import Piece, PieceKind, did_you_mean, pieces_of, words
from watersmeet.predicate.parse import check_condition, check_item

# Words that end an item, a source or a condition, where they are not part of a name.
_CLAUSES: Final = words("FROM WHERE JOIN INNER ON USING")
# Words of queries that mean something we do not do, with the reason.
_REFUSED: Final = {
    **dict.fromkeys(("LEFT", "RIGHT", "FULL", "OUTER", "SEMI", "ANTI"), "only inner joins are possible"),
    "CROSS": "write a comma between the inputs, and what joins them after WHERE",
    "NATURAL": "name the columns with USING or ON",
    **dict.fromkeys(("GROUP", "HAVING"), "aggregate the result of the join"),
    **dict.fromkeys(("ORDER", "SORT", "CLUSTER", "DISTRIBUTE"), "order the result of the join"),
    **dict.fromkeys(("LIMIT", "OFFSET"), "take rows of the result of the join"),
    **dict.fromkeys(("UNION", "EXCEPT", "MINUS", "INTERSECT"), "combine the results of several joins"),
    **dict.fromkeys(
        ("LATERAL", "TABLESAMPLE", "PIVOT", "UNPIVOT", "WINDOW", "QUALIFY"), "do it before or after the join"
    ),
}


@dataclass(frozen=True, slots=True)
class Query:
    """The inputs of a join by the names that the query uses, each with the source it reads; condition and columns."""

    inputs: tuple[tuple[str, str], ...]
    on: str
    select: tuple[str, ...]


def read_query(
    text: str, sources: Mapping[str, Schema], *, ansi: bool = True, case_sensitive: bool = False
) -> Query:
    """Read a query over some sources. Every refusal is a PredicateError with its place in the text.

    >>> from watersmeet.model.types import INT
    >>> sources = {"t": {"k": INT, "x": INT}, "u": {"k": INT}}
    >>> query = read_query("SELECT a.x, b.x AS y FROM t a JOIN t AS b USING (k), u WHERE u.k = a.k", sources)
    >>> query.inputs, query.on
    ((('a', 't'), ('b', 't'), ('u', 'u')), '(`a`.`k` = `b`.`k`) AND (u.k = a.k)')
    >>> query.select
    ('a.x', 'b.x AS y')
    """
    return QueryReader(text, sources, ansi, case_sensitive).read()


class QueryReader:
    """Reads the clauses of one text, from left to right. A hub query has some of its own (hubs/language.py)."""

    def __init__(
        self,
        text: str,
        sources: Mapping[str, Schema],
        ansi: bool,
        case_sensitive: bool,
        pieces: list[Piece] | None = None,
    ):
        self.text, self.sources = text, sources
        self.ansi, self.case_sensitive = ansi, case_sensitive
        self.pieces = pieces_of(text) if pieces is None else pieces
        self.at = 0
        self.inputs: dict[str, str] = {}
        self.conditions: list[list[Piece]] = []
        # The inputs that each condition may read; None for all of them.
        self.readable: list[tuple[str, ...] | None] = []
        self.equalities: list[str] = []
        # The columns of all inputs so far, as (input, column). USING merges some and puts them first.
        self.columns: list[tuple[str, str]] = []

    def read(self) -> Query:
        items = self.clauses()
        scope = self.scope()
        for pieces, readable in zip(self.conditions, self.readable, strict=True):
            check_condition(pieces, self.text, scope)
            self.check_reads(pieces, readable, scope)
        select = [shown for item in items for shown in self.shown(item, scope)]
        return Query(tuple(self.inputs.items()), self.on(), tuple(select))

    def clauses(self) -> list[list[Piece]]:
        """Read all clauses; the output columns, as pieces of the text. Nothing is checked against columns yet."""
        self.expect("SELECT", "a query begins with SELECT")
        self.quantifier()
        items = self.items()
        self.expect("FROM", "FROM is missing")
        self.columns = self.columns_of(self.source())
        while self.more():
            pass
        if self.peek().word == "WHERE":
            self.at += 1
            self.condition(None)
        if self.at < len(self.pieces):
            raise self.unexpected()
        return items

    def quantifier(self) -> None:
        """Read DISTINCT or ALL, which a join cannot do."""
        if self.peek().word in ("DISTINCT", "ALL"):
            raise self.refused(f"SELECT {self.peek().word} is not possible", "drop duplicates of the result")

    def peek(self, ahead: int = 0) -> Piece:
        place = self.at + ahead
        end = len(self.text)
        return self.pieces[place] if place < len(self.pieces) else Piece(PieceKind.END, "", end, end)

    def refused(self, problem: str, hint: str = "", piece: Piece | None = None) -> PredicateError:
        return PredicateError(problem, self.text, (piece or self.peek()).start, hint)

    def unexpected(self) -> PredicateError:
        piece = self.peek()
        if piece.word in _REFUSED:
            return self.refused(f"{piece.word} is not possible in this query", _REFUSED[piece.word])
        if piece.kind is PieceKind.END:
            return self.refused("the query ends too early")
        return self.refused(f"{piece.text} is not expected here")

    def expect(self, word: str, problem: str) -> None:
        if self.peek().word != word:
            raise self.unexpected() if self.peek().word in _REFUSED else self.refused(problem)
        self.at += 1

    def is_clause(self, place: int) -> bool:
        """Whether the word at a place begins a clause: not if it is part of a dotted name, or a function."""
        piece = self.pieces[place]
        if piece.word not in _CLAUSES and piece.word not in _REFUSED:
            return False
        before = self.pieces[place - 1].text if place else ""
        after = self.pieces[place + 1].text if place + 1 < len(self.pieces) else ""
        if before == "." or after == ".":
            return False
        return piece.word in ("ON", "WHERE", "FROM", "USING") or after != "("

    def until_clause(self, comma: bool) -> list[Piece]:
        """The pieces up to the next clause, or to a comma outside brackets if it ends them."""
        first, depth = self.at, 0
        while self.at < len(self.pieces):
            piece = self.pieces[self.at]
            if depth == 0 and (self.is_clause(self.at) or (comma and piece.text == ",")):
                break
            depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(piece.text, 0)
            self.at += 1
        return self.pieces[first : self.at]

    def items(self) -> list[list[Piece]]:
        found = [self.until_clause(comma=True)]
        while self.peek().text == ",":
            self.at += 1
            found.append(self.until_clause(comma=True))
        for item in found:
            if not item:
                raise (
                    self.unexpected() if self.peek().word in _REFUSED else self.refused("a column is missing")
                )
        return found

    def source(self) -> str:
        """Read a source and its alias; the name that the query uses for it."""
        piece = self.peek()
        if piece.text == "(":
            raise self.refused("a query inside a query is not possible", "make it a DataFrame, and name that")
        if not piece.is_name or (piece.kind is PieceKind.WORD and self.is_clause(self.at)):
            raise (
                self.unexpected()
                if piece.word in _REFUSED
                else self.refused("the name of an input is missing")
            )
        known = same_names(piece.name, self.sources, self.case_sensitive)
        if len(known) != 1:
            hint = f"{did_you_mean(piece.name, self.sources)}the inputs are {', '.join(self.sources)}"
            raise self.refused(f"there is no input {piece.name}", hint)
        self.at += 1
        named = known[0]
        if self.peek().word == "AS":
            self.at += 1
            if not self.peek().is_name:
                raise self.refused("a name is missing after AS")
        alias = self.peek()
        if alias.is_name and not (alias.kind is PieceKind.WORD and self.is_clause(self.at)):
            named, piece = alias.name, alias
            self.at += 1
        if same_names(named, self.inputs, self.case_sensitive):
            raise self.refused(
                f"two inputs are named {named}", f"give one another name: {known[0]} AS other", piece
            )
        self.inputs[named] = known[0]
        return named

    def more(self) -> bool:
        """Read one more source, with what joins it to those before; False if there is none."""
        if self.peek().text == ",":
            self.at += 1
            self.columns += self.columns_of(self.source())
            return True
        if self.peek().word not in ("JOIN", "INNER"):
            return False
        if self.peek().word == "INNER":
            self.at += 1
        self.expect("JOIN", "JOIN is missing after INNER")
        named = self.source()
        if self.peek().word == "ON":
            self.at += 1
            self.columns += self.columns_of(named)
            self.condition(tuple(self.inputs))
        elif self.peek().word == "USING":
            self.at += 1
            self.using(named)
        else:
            raise self.refused(f"the join of {named} has no condition", "add ON condition or USING (columns)")
        return True

    def condition(self, readable: tuple[str, ...] | None) -> None:
        found = self.until_clause(comma=True)
        if not found:
            raise self.refused("a condition is missing")
        self.conditions.append(found)
        self.readable.append(readable)

    def check_reads(self, pieces: list[Piece], readable: tuple[str, ...] | None, scope: Scope) -> None:
        """Refuse a condition that is right in itself, but reads an input that its ON does not see."""
        if readable is None or len(readable) == len(scope.inputs):
            return
        seen = {name: scope.schemas[name] for name in readable}
        try:
            check_condition(pieces, self.text, replace(scope, schemas=seen))
        except PredicateError as error:
            piece = next(piece for piece in pieces if piece.start == error.position)
            raise self.refused(
                f"this ON cannot read {piece.name}",
                f"{piece.name} comes later: write the condition there, or after WHERE",
                piece,
            ) from None

    def using(self, named: str) -> None:
        if self.peek().text != "(":
            raise self.refused("the columns of USING stand in brackets", "write USING (column)")
        before, here = self.columns, self.columns_of(named)
        merged: list[tuple[str, str]] = []
        while True:
            self.at += 1
            column = self.peek()
            if not column.is_name:
                raise self.refused("the name of a column is missing")
            if same_names(column.name, [name for _, name in merged], self.case_sensitive):
                raise self.refused(f"{column.name} is named twice")
            one, other = self.one_of(column, before), self.one_of(column, here)
            self.equalities.append(f"({_quoted(*one)} = {_quoted(*other)})")
            merged.append(one)
            here.remove(other)
            self.at += 1
            if self.peek().text not in (",", ")"):
                raise self.unexpected()
            if self.peek().text == ")":
                self.at += 1
                self.columns = [*merged, *(one for one in before if one not in merged), *here]
                return

    def one_of(self, column: Piece, columns: Sequence[tuple[str, str]]) -> tuple[str, str]:
        """The column that USING means on one side of a join."""
        found = [one for one in columns if same_names(column.name, [one[1]], self.case_sensitive)]
        if len(found) > 1:
            owners = " and ".join(".".join(one) for one in found)
            raise self.refused(f"{column.name} may be {owners}", "name the input with ON", column)
        if not found:
            names = " and ".join(dict.fromkeys(name for name, _ in columns))
            raise self.refused(f"{names} has no column {column.name}", "", column)
        return found[0]

    def columns_of(self, named: str) -> list[tuple[str, str]]:
        return [(named, column) for column in self.sources[self.inputs[named]]]

    def scope(self) -> Scope:
        schemas = {name: self.sources[source] for name, source in self.inputs.items()}
        return make_scope(schemas, self.ansi, self.case_sensitive)

    def shown(self, item: Sequence[Piece], scope: Scope) -> list[str]:
        """The items that one item stands for: a star for all columns, those of USING once and first."""
        if [piece.text for piece in item] == ["*"]:
            return [_quoted(*column) for column in self.columns]
        check_item(list(item), self.text, scope)
        return [self.text[item[0].start : item[-1].end]]

    def on(self) -> str:
        written = [f"({self.text[part[0].start : part[-1].end]})" for part in self.conditions]
        return " AND ".join([*self.equalities, *written]) or "true"


def _quoted(*names: str) -> str:
    return ".".join("`" + name.replace("`", "``") + "`" for name in names)
