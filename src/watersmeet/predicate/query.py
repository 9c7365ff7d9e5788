"""The text of a query to the parts of a join: which inputs under which names, the condition, the output columns.

    SELECT items FROM source [[AS] alias] {, source | [INNER] JOIN source {ON condition | USING (columns)}}
        [WHERE condition]

That is all that a query may say: anything else is refused at its place in the text. Conditions and items are read by
the same lexer, grammar and rules as `on=` and `select=`. They become one condition and one list of items, so a query is
the same join as the call with these arguments.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
    **dict.fromkeys(
        ("ORDER", "SORT", "CLUSTER", "DISTRIBUTE", "LIMIT", "OFFSET"), "order the result of the join"
    ),
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
        # USING says that a column is the same in several inputs: by its lower-case name the first of them.
        self.merged: dict[str, str] = {}
        self.equalities: list[str] = []
        self.dropped: set[tuple[str, str]] = set()

    def read(self) -> Query:
        items = self.clauses()
        scope = self.scope()
        for pieces in self.conditions:
            check_condition(pieces, self.text, scope)
        select = [shown for item in items for shown in self.shown(item, scope)]
        return Query(tuple(self.inputs.items()), self.on(), tuple(select))

    def clauses(self) -> list[list[Piece]]:
        """Read all clauses; the output columns, as pieces of the text. Nothing is checked against columns yet."""
        self.expect("SELECT", "a query begins with SELECT")
        self.quantifier()
        items = self.items()
        self.expect("FROM", "FROM is missing")
        self.source()
        while self.more():
            pass
        if self.peek().word == "WHERE":
            self.at += 1
            self.conditions.append(self.condition())
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
            self.source()
            return True
        if self.peek().word not in ("JOIN", "INNER"):
            return False
        if self.peek().word == "INNER":
            self.at += 1
        self.expect("JOIN", "JOIN is missing after INNER")
        named = self.source()
        if self.peek().word == "ON":
            self.at += 1
            self.conditions.append(self.condition())
        elif self.peek().word == "USING":
            self.at += 1
            self.using(named)
        else:
            raise self.refused(f"the join of {named} has no condition", "add ON condition or USING (columns)")
        return True

    def condition(self) -> list[Piece]:
        found = self.until_clause(comma=True)
        if not found:
            raise self.refused("a condition is missing")
        return found

    def using(self, named: str) -> None:
        if self.peek().text != "(":
            raise self.refused("the columns of USING stand in brackets", "write USING (column)")
        while True:
            self.at += 1
            column = self.peek()
            if not column.is_name:
                raise self.refused("the name of a column is missing")
            self.equal(column, named)
            self.at += 1
            if self.peek().text not in (",", ")"):
                raise self.unexpected()
            if self.peek().text == ")":
                self.at += 1
                return

    def equal(self, column: Piece, named: str) -> None:
        """The column of the newest input equals that of the inputs before it."""
        before = [name for name in self.inputs if name != named and self.columns(name, column)]
        here = self.columns(named, column)
        first = self.merged.get(column.name.lower())
        if first is None and len(before) > 1:
            raise self.refused(
                f"{column.name} is a column of {' and '.join(before)}", "name the input with ON", column
            )
        if not here or not before:
            missing = named if not here else " and ".join(name for name in self.inputs if name != named)
            raise self.refused(f"{missing} has no column {column.name}", "", column)
        first = first or before[0]
        self.merged[column.name.lower()] = first
        self.dropped.add((named, here[0]))
        self.equalities.append(
            f"({_quoted(first, self.columns(first, column)[0])} = {_quoted(named, here[0])})"
        )

    def columns(self, named: str, column: Piece) -> list[str]:
        return same_names(column.name, self.sources[self.inputs[named]], self.case_sensitive)

    def scope(self) -> Scope:
        schemas = {name: self.sources[source] for name, source in self.inputs.items()}
        return make_scope(schemas, self.ansi, self.case_sensitive)

    def shown(self, item: Sequence[Piece], scope: Scope) -> list[str]:
        """The items that one item stands for: a star for all columns, those of USING once."""
        if [piece.text for piece in item] == ["*"]:
            return [
                _quoted(name, column)
                for name in self.inputs
                for column in scope.schemas[name]
                if (name, column) not in self.dropped
            ]
        check_item(list(item), self.text, scope)
        return [self.text[item[0].start : item[-1].end]]

    def on(self) -> str:
        written = [f"({self.text[part[0].start : part[-1].end]})" for part in self.conditions]
        return " AND ".join([*self.equalities, *written]) or "true"


def _quoted(*names: str) -> str:
    return ".".join("`" + name.replace("`", "``") + "`" for name in names)
