"""The text of a hub query: which streams, what must be equal, what is compared with constants, what comes out.

    SELECT [DISTINCT] expressions FROM stream [[AS] alias] {, stream ...} [WHERE condition {AND condition}]
        [WINDOW n unit | WINDOW TUMBLING n unit | WINDOW n ROWS] [SINCE TIMESTAMP '...']

Clauses, names and types are read by the parser of `wm.sql` (predicate/query.py). A hub evaluates conditions for
thousands of queries at once, without a loop over them, so it takes less of them than a join does:

    a.x = b.y                                     two columns of different inputs, of types that compare without a cast
    a.x = 5, <, <=, >, >=, <>, BETWEEN, IN (...)  a column with constants that its type holds exactly
    a.x IS [NOT] NULL

Output columns are columns and the expressions that a hub computes (hubs/expressions.py).

Every constant of a text gets a number, in reading order, and is a column of the pseudo input `?` to the parser. So the
conditions are parsed without its value, and texts that differ only in constants have the same *template*
(hubs/templates.py). Every refusal is a PredicateError with its place in the text.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from watersmeet.errors import PredicateError
from watersmeet.hubs.constants import Constant, comparable, same_words
from watersmeet.hubs.expressions import CONSTANTS, NotComputable, prepared
from watersmeet.hubs.window import HubWindow
from watersmeet.model.expression import Call, Column, Expression, with_columns
from watersmeet.model.types import Schema, SqlType
from watersmeet.predicate import grammar
from watersmeet.predicate.build import Builder, Conjunct, Scope, described
from watersmeet.predicate.lex import Kind, Lexeme, NamePart, Piece, lexemes_of
from watersmeet.predicate.literals import brief
from watersmeet.predicate.query import QueryReader

# The paper's longest joins have eight relations; beyond that one query is worth a plan of its own.
MOST_INPUTS: Final = 8
# Before the numbers of constants, so that no column is like them where a message says what was perhaps meant.
_NUMBERED: Final = "?" * 12

# The words and signs of `a.x = b.y`.
_PLAIN_PIECES: Final = 7
_COMPARED: Final = ("=", "<>", "<", "<=", ">", ">=")
_MIRRORED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_Built = TypeVar("_Built")
_NEGATED: Final = {"=": "<>", "<>": "=", "in": "not in", "is null": "is not null", "is not null": "is null"}


@dataclass(frozen=True, slots=True)
class Equality:
    """Two columns of different inputs that must be equal. Inputs are numbers, in the order of FROM."""

    left: int
    left_column: str
    right: int
    right_column: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """A column of one input, compared with some constants: `slots` are their numbers."""

    input: int
    column: str
    op: str
    slots: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Item:
    """One output column: its name, and the column that it shows, or an expression.

    The inputs of an expression are named by their numbers, as "0", and constants are columns of the input `?`.
    """

    name: str
    input: int = -1
    column: str = ""
    expression: Expression | None = None

    def type_of(self, schema: Callable[[int], Schema]) -> SqlType:
        """The type of the column, given the columns of each input."""
        return self.expression.type if self.expression is not None else schema(self.input)[self.column]


@dataclass(frozen=True, slots=True)
class Template:
    """What the texts of some queries have in common: everything but their constants."""

    aliases: tuple[str, ...]
    streams: tuple[str, ...]
    equalities: tuple[Equality, ...]
    filters: tuple[Comparison, ...]
    items: tuple[Item, ...]
    distinct: bool = False


def with_shared_parts(template: Template, shared: Callable[[Any], Any]) -> Template:
    """The same template, of parts that `shared` gives: the first of equal ones. Thousands of templates have few parts."""
    return replace(
        template,
        aliases=shared(tuple(map(shared, template.aliases))),
        streams=shared(tuple(map(shared, template.streams))),
        equalities=tuple(map(shared, template.equalities)),
        filters=tuple(map(shared, template.filters)),
        items=shared(tuple(map(shared, template.items))),
    )


@dataclass(frozen=True, slots=True)
class HubQuery:
    """One query: its template, its constants as text (hubs/constants.py), its window, and SINCE in microseconds."""

    template: Template
    constants: tuple[str, ...]
    window: HubWindow | None = None
    since: int | None = None


def read_template(
    text: str,
    pieces: Sequence[Piece],
    constants: Sequence[Constant],
    streams: Mapping[str, Schema],
    *,
    ansi: bool = True,
    case_sensitive: bool = False,
) -> Template:
    """Read the pieces of a text, without its WINDOW and SINCE, over some streams. `constants` are those of the text."""
    return _HubReader(text, pieces, constants, streams, ansi, case_sensitive).template()


class _HubReader(QueryReader):
    """Reads one text. Constants are known by the place where they begin."""

    def __init__(
        self,
        text: str,
        pieces: Sequence[Piece],
        constants: Sequence[Constant],
        streams: Mapping[str, Schema],
        ansi: bool,
        case_sensitive: bool,
    ):
        super().__init__(text, streams, ansi, case_sensitive, list(pieces))
        self.constants = constants
        self.slot_at = {constant.start: slot for slot, constant in enumerate(constants)}
        self.distinct = False
        self.numbers: dict[str, int] = {}

    def template(self) -> Template:
        items = self.clauses()
        if len(self.inputs) > MOST_INPUTS:
            raise PredicateError(
                f"a hub query has at most {MOST_INPUTS} inputs, got {len(self.inputs)}", self.text, 0
            )
        self.numbers = {name: number for number, name in enumerate(self.inputs)}
        scope = self.scope()
        equalities, filters = self.conditions_of(scope)
        shown = tuple(found for item in items for found in self.item(item, scope))
        self.check_names(shown)
        self.check_connected(equalities)
        return Template(
            tuple(self.inputs),
            tuple(self.inputs.values()),
            tuple(dict.fromkeys(equalities)),
            tuple(filters),
            shown,
            self.distinct,
        )

    def is_clause(self, place: int) -> bool:
        """As in a join, but that the clause WINDOW is cut off already: what is left of the word are names."""
        return self.pieces[place].word != "WINDOW" and super().is_clause(place)

    def quantifier(self) -> None:
        if self.peek().word in ("DISTINCT", "ALL"):
            self.distinct = self.peek().word == "DISTINCT"
            self.at += 1

    def using(self, named: str) -> None:
        raise self.refused(
            "USING is not possible in a hub query", f"write the equality: WHERE a.k = {named}.k"
        )

    def scope(self, *, with_constants: bool = True) -> Scope:
        """The inputs by alias, and the constants. One input is enough here."""
        schemas: dict[str, Schema] = {name: self.sources[source] for name, source in self.inputs.items()}
        if with_constants:
            schemas[CONSTANTS] = {
                f"{_NUMBERED}{slot}": constant.type for slot, constant in enumerate(self.constants)
            }
        return Scope(schemas, self.ansi, self.case_sensitive)

    # --- conditions -----------------------------------------------------------------------------------------------

    def conditions_of(self, scope: Scope) -> tuple[list[Equality], list[Comparison]]:
        equalities: list[Equality] = []
        filters: list[Comparison] = []
        for pieces in self.conditions:
            plain = self.plain_equalities(pieces, scope)
            if plain is not None:
                equalities += plain
                continue
            for conjunct in self.conjuncts(pieces, scope):
                found = self.condition_of(conjunct)
                if isinstance(found, Equality):
                    equalities.append(found)
                else:
                    filters.append(found)
        return equalities, filters

    def plain_equalities(self, pieces: list[Piece], scope: Scope) -> list[Equality] | None:
        """A condition that is nothing but `a.x = b.y AND ...`, without the parser; None if it is not, or has an error.

        Most conditions of most queries are, and the parser would take half of the time that a new template takes.
        """
        if len(pieces) % (_PLAIN_PIECES + 1) != _PLAIN_PIECES:
            return None
        found = []
        for at in range(0, len(pieces), _PLAIN_PIECES + 1):
            one, dot, column, sign, other, other_dot, other_column, *_ = mine = pieces[
                at : at + _PLAIN_PIECES + 1
            ]
            signs = (dot.text, sign.text, other_dot.text, *(piece.word for piece in mine[_PLAIN_PIECES:]))
            names = all(piece.is_name for piece in (one, column, other, other_column))
            if not names or signs not in ((".", "=", "."), (".", "=", ".", "AND")):
                return None
            equality = self.plain_equality((one, column), (other, other_column), scope)
            if equality is None:
                return None
            found.append(equality)
        return found

    def plain_equality(
        self, one: tuple[Piece, Piece], other: tuple[Piece, Piece], scope: Scope
    ) -> Equality | None:
        try:
            columns = [
                scope.resolve(tuple(NamePart(piece.name, piece.start) for piece in side), self.text)
                for side in (one, other)
            ]
        except PredicateError:
            return None
        left, right = columns
        if not isinstance(left, Column) or not isinstance(right, Column) or left.type != right.type:
            return None
        # All else is for the parser to refuse, or to make something else of.
        if CONSTANTS in (left.input, right.input) or left.input == right.input or not comparable(left.type):
            return None
        return self.equality_of(left, right, one[0].start)

    def conjuncts(self, pieces: list[Piece], scope: Scope) -> list[Conjunct]:
        return self.parsed(pieces, scope, Builder.conjuncts)

    def parsed(self, pieces: list[Piece], scope: Scope, build: Callable[[Builder, Any], _Built]) -> _Built:
        lexemes = self.lexemes(pieces)
        try:
            tree = grammar.parse(lexemes, self.text)
            return build(Builder(scope, lexemes, self.text), tree)
        except PredicateError as error:
            # The text has constants where the parser has columns of the pseudo input.
            problem = error.problem.replace(f"{CONSTANTS}.{_NUMBERED}", "constant ")
            raise PredicateError(problem, self.text, error.position, _without_pseudo(error.hint)) from None
        except RecursionError:
            raise PredicateError("nested too deeply", self.text, pieces[0].start) from None

    def lexemes(self, pieces: list[Piece]) -> list[Lexeme]:
        found = lexemes_of(pieces, self.text)
        for lexeme, following in itertools.pairwise(found):
            if following.text == "." and lexeme.start in self.slot_at:
                raise PredicateError(
                    "a constant has no fields", self.text, following.start, "write input.column"
                )
        return [part for lexeme in found for part in self.named(lexeme)]

    def named(self, lexeme: Lexeme) -> list[Lexeme]:
        """A constant as a column of the pseudo input, so that the tree is the same for all its values."""
        start, signed = lexeme.start, []
        if lexeme.kind is Kind.LITERAL and start not in self.slot_at and lexeme.text.startswith("-"):
            # The sign of a number, which is not part of the constant.
            start = lexeme.end - len(lexeme.text[1:].lstrip())
            signed = [Lexeme(Kind.SYMBOL, "-", lexeme.start, lexeme.start + 1)]
        slot = self.slot_at.get(start)
        if lexeme.kind is not Kind.LITERAL or slot is None:
            return [lexeme]
        parts = (NamePart(CONSTANTS, start), NamePart(f"{_NUMBERED}{slot}", start))
        return [*signed, replace(lexeme, kind=Kind.NAME, start=start, value=parts)]

    def condition_of(self, conjunct: Conjunct) -> Equality | Comparison:
        condition, negated = conjunct.expression, False
        while isinstance(condition, Call) and condition.op == "not":
            condition, negated = condition.args[0], not negated
        found = self.null_test(condition) or self.comparison_of(condition, conjunct.position)
        if found is None or (negated and not isinstance(found, Comparison)):
            raise PredicateError(
                "this condition is not possible in a hub query",
                self.text,
                conjunct.position,
                "write equalities of two columns, and comparisons of a column with constants, joined by AND",
            )
        if not negated or isinstance(found, Equality):
            return found
        op = _NEGATED.get(found.op) or {"<": ">=", "<=": ">", ">": "<=", ">=": "<"}[found.op]
        return replace(found, op=op)

    def null_test(self, condition: Expression) -> Comparison | None:
        if not isinstance(condition, Call) or condition.op != "is_null":
            return None
        column = condition.args[0]
        if not isinstance(column, Column) or column.input == CONSTANTS:
            return None
        return Comparison(self.numbers[column.input], column.name, "is null")

    def comparison_of(self, condition: Expression, place: int) -> Equality | Comparison | None:
        if not isinstance(condition, Call) or condition.op not in (*_COMPARED, "in"):
            return None
        if not all(isinstance(arg, Column) for arg in condition.args):
            return None
        columns = [arg for arg in condition.args if isinstance(arg, Column)]
        op = condition.op
        if op != "in" and columns[0].input == CONSTANTS:
            columns, op = columns[::-1], _MIRRORED.get(op, op)
        first, *others = columns
        if first.input == CONSTANTS:
            return None
        if all(other.input == CONSTANTS for other in others):
            return self.filter_of(first, op, others)
        if op != "=" or len(columns) > 2 or first.input == others[0].input:
            return None
        return self.equality_of(first, others[0], place)

    def filter_of(self, column: Column, op: str, constants: Sequence[Column]) -> Comparison:
        slots = tuple(int(constant.name.removeprefix(_NUMBERED)) for constant in constants)
        if not comparable(column.type):
            raise PredicateError(
                f"{described(column)} cannot be compared with a constant in a hub query",
                self.text,
                self.constants[slots[0]].start,
                "compare a number, a text, a boolean, a date or a timestamp",
            )
        return Comparison(self.numbers[column.input], column.name, op, slots)

    def equality_of(self, one: Column, other: Column, place: int) -> Equality:
        if not same_words(one.type, other.type):
            raise PredicateError(
                f"{described(one)} and {described(other)} are not of one type",
                self.text,
                place,
                "a hub finds equal values without a cast: give both columns one type in their streams",
            )
        if self.numbers[one.input] > self.numbers[other.input]:
            one, other = other, one
        return Equality(self.numbers[one.input], one.name, self.numbers[other.input], other.name)

    # --- output columns -------------------------------------------------------------------------------------------

    def item(self, pieces: list[Piece], scope: Scope) -> list[Item]:
        texts = [piece.text for piece in pieces]
        if texts == ["*"]:
            columns = [(name, column) for name in self.numbers for column in scope.schemas[name]]
        elif texts[1:] == [".", "*"] and pieces[0].is_name:
            name = scope.input_named(NamePart(pieces[0].name, pieces[0].start), self.text)
            columns = [(name, column) for column in scope.schemas[name]]
        else:
            return [self.one_item(pieces, scope)]
        return [self.shown_item(scope.schemas[n][c], n, c, c, pieces[0]) for n, c in columns]

    def one_item(self, pieces: list[Piece], scope: Scope) -> Item:
        alias, body = None, pieces
        if len(pieces) > 2 and pieces[-2].word == "AS":
            if not pieces[-1].is_name:
                raise PredicateError("not a name for a column", self.text, pieces[-1].start)
            alias, body = pieces[-1].name, pieces[:-2]
        # A single name first without the pseudo input, which messages should not speak of.
        lexemes = lexemes_of(body, self.text)
        value = lexemes[0].value if len(lexemes) == 1 and lexemes[0].kind is Kind.NAME else None
        if isinstance(value, tuple):
            found = self.scope(with_constants=False).resolve(value, self.text)
        else:
            found = self.parsed(body, scope, Builder.build)
        if isinstance(found, Column) and found.input != CONSTANTS:
            return self.shown_item(found.type, found.input, found.name, alias or found.name, pieces[0])
        return self.computed_item(found, alias, body)

    def computed_item(self, found: Expression, alias: str | None, body: Sequence[Piece]) -> Item:
        if alias is None:
            written = brief(self.text[body[0].start : body[-1].end])
            raise PredicateError(
                "an expression needs a name", self.text, body[0].start, f"write {written} AS name"
            )
        try:
            expression = prepared(with_columns(found, self.by_number))
            if not comparable(expression.type):
                raise NotComputable("", f"a value of type {expression.type}")
        except NotComputable as error:
            place = next((piece for piece in body if piece.text.lower() == error.op), body[0])
            raise PredicateError(
                f"a hub query cannot compute {error.problem}",
                self.text,
                place.start,
                "select the columns, and compute the rest from the answers",
            ) from None
        return Item(alias, expression=expression)

    def by_number(self, column: Column) -> Column:
        """A column of an input, or a constant, without the names of this text."""
        if column.input == CONSTANTS:
            return Column(CONSTANTS, column.name.removeprefix(_NUMBERED), column.type)
        return Column(str(self.numbers[column.input]), column.name, column.type)

    def shown_item(self, kind: SqlType, input_: str, column: str, name: str, piece: Piece) -> Item:
        if not comparable(kind):
            raise PredicateError(
                f"{input_}.{column} is {kind}, which an answer cannot hold",
                self.text,
                piece.start,
                "name the columns that are numbers, texts, booleans, dates or timestamps",
            )
        return Item(name, self.numbers[input_], column)

    def check_names(self, items: Sequence[Item]) -> None:
        seen: set[str] = set()
        for item in items:
            if item.name.lower() in seen:
                raise PredicateError(
                    f"two columns are named {brief(item.name)}",
                    self.text,
                    0,
                    f"give one of them another name: {self.written(item)} AS other",
                )
            seen.add(item.name.lower())

    def written(self, item: Item) -> str:
        """How a text may name an output column."""
        return "expression" if item.expression is not None else f"{self.aliases[item.input]}.{item.column}"

    @property
    def aliases(self) -> list[str]:
        return list(self.inputs)

    def check_connected(self, equalities: Sequence[Equality]) -> None:
        """Refuse an input that no equality joins to the others: each row of it would meet all rows of them."""
        reached, grown = {0}, True
        while grown:
            edges = [{equality.left, equality.right} for equality in equalities]
            more = set().union(*(edge for edge in edges if edge & reached)) - reached
            reached, grown = reached | more, bool(more)
        apart = [alias for number, alias in enumerate(self.aliases) if number not in reached]
        if apart:
            raise PredicateError(
                f"no equality joins {' and '.join(apart)} to {self.aliases[0]}",
                self.text,
                0,
                f"add one, such as {self.aliases[0]}.k = {apart[0]}.k",
            )


def _without_pseudo(hint: str) -> str:
    """A hint that does not list the pseudo input among the inputs."""
    return (
        hint.replace(f", {CONSTANTS}", "")
        .replace(f" or {CONSTANTS}.{_NUMBERED}0", "")
        .replace(f" or {CONSTANTS}.column", "")
    )
