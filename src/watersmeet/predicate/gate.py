"""What may stand in a predicate, and where: the check before the parser sees anything.

Two purposes. It refuses everything that is not on the allow-list, with the exact place. And it keeps out
what sqlglot and Spark read differently, so that the tree built from sqlglot's reading is Spark's:

- comparisons do not chain: `a = b < c` and `a = b IS NULL` need brackets (Spark groups from the left,
  sqlglot by kind of operator);
- `||` does not mix with `+` and `-` (one level in Spark, two in sqlglot);
- NOT begins a condition, BETWEEN has its AND, lists have no gaps (sqlglot is lenient with all three).

Invariant: one pass, constant work for each lexeme, no recursion; what passes is at most MAX_NESTING deep.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from watersmeet.errors import PredicateError
from watersmeet.predicate.functions import known, refusal
from watersmeet.predicate.lex import brief, words
from watersmeet.predicate.lexemes import Lexeme, Name

# sqlglot uses about 25 Python frames for each level; Python allows 1000, and the caller has some already.
MAX_NESTING: Final = 24

_COMPARISONS: Final = words("= == <=> <> != < <= > >= LIKE ILIKE RLIKE REGEXP")
_TERMS: Final = frozenset(("+", "-", "||"))
_FACTORS: Final = frozenset(("*", "/", "%", "DIV"))
_NEGATABLE: Final = words("IN LIKE ILIKE RLIKE REGEXP BETWEEN")
_BEFORE_NOT: Final = words("( , AND OR NOT ! WHEN THEN ELSE CASE")
_CASE_ORDER: Final = {"CASE": ("WHEN",), "WHEN": ("THEN",), "THEN": ("WHEN", "ELSE", "END"), "ELSE": ("END",)}
_CLOSER: Final = {"(": ")", "call": ")", "in": ")", "[": "]"}

_NO_QUERY: Final = ("a predicate has no queries", "join the other table first")
_NO_WINDOW: Final = (
    "a predicate sees one pair of rows: no windows, no aggregates",
    "compute it before the join",
)
_NO_STATEMENT: Final = (
    "a predicate is one expression, not a statement",
    "give a condition such as l.k = r.k",
)
_NO_CLOCK: Final = (
    "a predicate does not read the clock or the session",
    "compute it as a column before the join",
)
_REFUSED: Final[dict[str, tuple[str, str]]] = {
    **dict.fromkeys(
        words("SELECT WITH VALUES WHERE GROUP ORDER HAVING LIMIT UNION EXCEPT INTERSECT"), _NO_QUERY
    ),
    **dict.fromkeys(words("EXISTS ANY ALL SOME TABLE LATERAL JOIN UNNEST FROM DISTINCT"), _NO_QUERY),
    **dict.fromkeys(words("OVER PARTITION FILTER WITHIN ROWS RANGE QUALIFY"), _NO_WINDOW),
    **dict.fromkeys(words("CREATE DROP INSERT UPDATE DELETE ALTER SET SHOW USE GRANT MERGE"), _NO_STATEMENT),
    **dict.fromkeys(
        words("TRUNCATE REFRESH CACHE LOAD ADD EXPLAIN DESCRIBE CALL EXECUTE BEGIN"), _NO_STATEMENT
    ),
    **dict.fromkeys(
        words("CURRENT_DATE CURRENT_TIMESTAMP CURRENT_TIME CURRENT_USER LOCALTIMESTAMP"), _NO_CLOCK
    ),
    **dict.fromkeys(words("USER SESSION_USER CURRENT_DATABASE CURRENT_CATALOG"), _NO_CLOCK),
    "AS": ("AS is not allowed here", "an alias stands at the end of a selected column only"),
    "ESCAPE": ("ESCAPE is not allowed", "escape with a backslash, or use RLIKE"),
    "COLLATE": ("COLLATE is not allowed", "compare lower(x), or set the column's collation before the join"),
    "INTERVAL": ("not an interval", "write INTERVAL 5 MINUTES or INTERVAL 1 DAY 2 HOURS"),
    "LAMBDA": ("a predicate has no lambda functions", "compute it as a column before the join"),
}
_SYMBOL_HINTS: Final = {
    "*": ("a star is not allowed here", "name the columns one by one"),
    "->": ("a predicate has no lambda functions", "compute it as a column before the join"),
    "=>": ("arguments have no names here", "give the arguments in order"),
    "+": ("a plus sign before a value is not allowed", "leave it out"),
}


@dataclass(slots=True)
class _Group:
    """An open bracket, CASE or the whole text. `compared`, `between` and `term` are of the current clause."""

    kind: str
    opener: Lexeme
    depth: int
    compared: Lexeme | None = None
    between: Lexeme | None = None
    term: str = ""
    stage: str = "CASE"

    def next_clause(self) -> None:
        self.compared, self.between, self.term = None, None, ""


def check(lexemes: list[Lexeme], text: str) -> None:
    """Raise PredicateError for anything outside the allow-list; return if sqlglot may read the text."""
    _Gate(lexemes, text).run()


class _Gate:
    def __init__(self, lexemes: list[Lexeme], text: str):
        self.lexemes, self.text = lexemes, text
        self.at = 0
        self.wants_value = True
        self.prefixes = 0
        self.end = Lexeme("end", "", len(text.rstrip()), len(text))
        self.groups = [_Group("top", self.end, 0)]

    @property
    def group(self) -> _Group:
        return self.groups[-1]

    def run(self) -> None:
        while self.at < len(self.lexemes):
            lexeme = self.lexemes[self.at]
            self.at += 1
            self.admit(lexeme)
            if self.wants_value:
                self.value(lexeme)
            else:
                self.after_value(lexeme)
        if self.wants_value:
            raise self.refused("the text ends too early: a value is missing", self.end)
        if len(self.groups) > 1:
            raise self.refused(f"this {self.group.opener.text} is never closed", self.group.opener)
        self.close_clause(self.end)

    def refused(self, problem: str, lexeme: Lexeme, hint: str = "") -> PredicateError:
        return PredicateError(problem, self.text, lexeme.start, hint)

    def because(self, reason: tuple[str, str], lexeme: Lexeme) -> PredicateError:
        return self.refused(reason[0], lexeme, reason[1])

    def peek(self, ahead: int = 0) -> Lexeme:
        index = self.at + ahead
        return self.lexemes[index] if index < len(self.lexemes) else self.end

    def admit(self, lexeme: Lexeme) -> None:
        if lexeme.kind == "call" and lexeme.text.upper() not in _REFUSED and not known(lexeme.text):
            raise self.because(refusal(lexeme.text), lexeme)
        single = isinstance(lexeme.value, Name) and len(lexeme.value.parts) == 1
        if (lexeme.kind == "call" or single) and lexeme.text.upper() in _REFUSED:
            raise self.because(_REFUSED[lexeme.text.upper()], lexeme)

    def value(self, lexeme: Lexeme) -> None:
        if lexeme.kind in ("literal", "type", "name"):
            self.wants_value, self.prefixes = False, 0
        elif lexeme.kind == "call":
            self.at += 1
            self.open("call", lexeme)
        elif lexeme.text == "(":
            self.open("(", lexeme)
        elif lexeme.text == ")" and self.group.kind == "call" and self.lexemes[self.at - 2].text == "(":
            self.close(lexeme)
        elif lexeme.text in ("NOT", "!", "-"):
            self.prefix(lexeme)
        elif lexeme.text == "CASE":
            self.open("case", lexeme)
        elif lexeme.text == "WHEN" and self.lexemes[self.at - 2].text == "CASE":
            self.group.stage = "WHEN"
        else:
            raise self.no_value(lexeme)

    def no_value(self, lexeme: Lexeme) -> PredicateError:
        if lexeme.text in _REFUSED:
            return self.because(_REFUSED[lexeme.text], lexeme)
        if lexeme.text in _SYMBOL_HINTS:
            return self.because(_SYMBOL_HINTS[lexeme.text], lexeme)
        return self.refused(f"expected a value, found {brief(lexeme.text)}", lexeme)

    def prefix(self, lexeme: Lexeme) -> None:
        before = self.lexemes[self.at - 2].text if self.at > 1 else "("
        starts = before in _BEFORE_NOT and self.group.compared is None
        if lexeme.text != "-" and not starts:
            raise self.refused("NOT stands before a whole condition", lexeme, "put NOT (...) in brackets")
        self.prefixes += 1
        self.check_depth(self.group.depth + self.prefixes, lexeme)

    def check_depth(self, depth: int, lexeme: Lexeme) -> None:
        if depth > MAX_NESTING:
            problem = f"nested too deeply: more than {MAX_NESTING} levels"
            raise self.refused(problem, lexeme, "compute a part of it as a column before the join")

    def open(self, kind: str, opener: Lexeme) -> None:
        depth = self.group.depth + self.prefixes + 1
        self.check_depth(depth, opener)
        self.groups.append(_Group(kind, opener, depth))
        self.wants_value, self.prefixes = True, 0

    def close(self, lexeme: Lexeme) -> None:
        if self.group.kind == "top" or _CLOSER.get(self.group.kind, "END") != lexeme.text:
            raise self.refused(f"this {lexeme.text} closes nothing", lexeme)
        self.close_clause(lexeme)
        self.groups.pop()
        self.wants_value, self.prefixes = False, 0

    def close_clause(self, lexeme: Lexeme) -> None:
        if self.group.between:
            raise self.refused("BETWEEN needs AND: x BETWEEN low AND high", self.group.between)
        self.group.next_clause()

    def after_value(self, lexeme: Lexeme) -> None:
        text = lexeme.text
        if lexeme.kind not in ("word", "symbol"):
            raise self.refused(
                f"an operator is missing before {brief(text)}", lexeme, "AND, OR, =, <, + or a comma?"
            )
        if text in _TERMS or text in _FACTORS:
            self.arithmetic(lexeme)
        elif text in _COMPARISONS or text in ("IN", "BETWEEN", "IS"):
            self.comparison(lexeme)
        elif text == "NOT" and self.peek().text in _NEGATABLE:
            return
        elif text in ("AND", "OR"):
            self.connective(lexeme)
        elif text in (")", "]"):
            self.close(lexeme)
        else:
            self.punctuation(lexeme)

    def arithmetic(self, lexeme: Lexeme) -> None:
        group, text = self.group, lexeme.text
        if text in _TERMS:
            term = "||" if text == "||" else "+"
            if group.term and group.term != term:
                raise self.refused(f"|| and {text} need brackets to say which comes first", lexeme)
            group.term = term
        self.wants_value = True

    def comparison(self, lexeme: Lexeme) -> None:
        group = self.group
        if group.compared:
            problem = f"{group.compared.text} and {lexeme.text} need brackets to say which comes first"
            raise self.refused(problem, lexeme, "write (a = b) = c, or a = b AND b = c")
        group.compared, group.term = lexeme, ""
        self.wants_value = True
        if lexeme.text == "BETWEEN":
            group.between = lexeme
        elif lexeme.text == "IN":
            self.in_list(lexeme)
        elif lexeme.text == "IS":
            self.is_test(lexeme)

    def in_list(self, lexeme: Lexeme) -> None:
        if self.peek().text != "(":
            raise self.refused("IN needs a list in brackets", lexeme, "write x IN (1, 2)")
        self.at += 1
        self.open("in", lexeme)

    def is_test(self, lexeme: Lexeme) -> None:
        self.at += self.peek().text == "NOT"
        if self.peek().text in ("NULL", "TRUE", "FALSE"):
            self.at += 1
            self.wants_value = False
        elif (self.peek().text, self.peek(1).text) == ("DISTINCT", "FROM"):
            self.at += 2
        else:
            raise self.refused("IS needs NULL, TRUE, FALSE or DISTINCT FROM", lexeme)

    def connective(self, lexeme: Lexeme) -> None:
        group = self.group
        if lexeme.text == "AND" and group.between:
            group.between, group.term = None, ""
        else:
            self.close_clause(lexeme)
        self.wants_value = True

    def punctuation(self, lexeme: Lexeme) -> None:
        text, group = lexeme.text, self.group
        if text == "[":
            self.open("[", lexeme)
        elif text == "." and self.peek().kind == "field":
            self.at += 1
        elif text == "," and group.kind in ("call", "in"):
            self.close_clause(lexeme)
            self.wants_value = True
        elif text == ",":
            raise self.refused(
                "a list is not a value", lexeme, "compare the columns one by one, joined by AND"
            )
        elif group.kind == "case" and text in _CASE_ORDER[group.stage]:
            self.case_word(lexeme)
        elif text in _REFUSED:
            raise self.because(_REFUSED[text], lexeme)
        else:
            raise self.refused(f"{brief(text)} is not allowed here", lexeme)

    def case_word(self, lexeme: Lexeme) -> None:
        self.close_clause(lexeme)
        if lexeme.text == "END":
            self.close(lexeme)
        else:
            self.group.stage = lexeme.text
            self.wants_value = True
