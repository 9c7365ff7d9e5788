"""Lexemes to a syntax tree: what may stand in a predicate, and where.

First the gate. It refuses everything that is not on the allow-list, with its position. It also keeps out what sqlglot
and Spark read differently, so that sqlglot's tree is Spark's:

- comparisons do not chain: `a = b < c` and `a = b IS NULL` need brackets (Spark groups from the left, sqlglot by
  kind of operator);
- `||` does not mix with `+` and `-` (one level in Spark, two in sqlglot);
- NOT begins a condition, BETWEEN has its AND, lists have no gaps (sqlglot is lenient with all three).

Then sqlglot's Spark parser, with all of its dictionaries of functions taken out. It knows hundreds of functions and
rewrites them for other dialects (`date_sub` becomes an addition, `CAST` a try). Here every operand and function
reaches it as an opaque number, so it decides structure only and cannot change a meaning. The numbers lead back to
the lexemes.

Invariant: the gate is one pass with constant work for each lexeme and no recursion; what passes it is at most
MAX_NESTING deep.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import ClassVar, Final

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ErrorLevel, SqlglotError
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokenizer_core import Token, TokenType

from watersmeet.errors import PredicateError
from watersmeet.predicate.functions import REFUSED_SYMBOLS, REFUSED_WORDS, is_known, refusal
from watersmeet.predicate.lex import Kind, Lexeme, words
from watersmeet.predicate.literals import brief

# sqlglot uses about 25 Python frames for each level; Python allows 1000, and the caller has some already.
MAX_NESTING: Final = 24
# Long sums are left-deep trees; the functions that walk the typed tree recurse.
MAX_TREE_DEPTH: Final = 100

_COMPARISONS: Final = words("= == <=> <> != < <= > >= LIKE ILIKE RLIKE REGEXP")
_TERMS: Final = frozenset(("+", "-", "||"))
_FACTORS: Final = frozenset(("*", "/", "%", "DIV"))
_NEGATABLE: Final = words("IN LIKE ILIKE RLIKE REGEXP BETWEEN")
_BEFORE_NOT: Final = words("( , AND OR NOT ! WHEN THEN ELSE CASE")
_CASE_ORDER: Final = {"CASE": ("WHEN",), "WHEN": ("THEN",), "THEN": ("WHEN", "ELSE", "END"), "ELSE": ("END",)}


def parse(lexemes: list[Lexeme], text: str) -> exp.Expr:
    """The syntax tree of one expression; PredicateError for anything outside the allow-list."""
    _Gate(lexemes, text).run()
    parser = _StructureOnly(error_level=ErrorLevel.IMMEDIATE, dialect=Spark)
    try:
        trees = parser.parse_into(exp.Condition, [_token(i, lexeme) for i, lexeme in enumerate(lexemes)])
    except SqlglotError as error:
        raise _syntax_error(error, lexemes, text) from None
    if len(trees) != 1 or trees[0] is None:
        raise PredicateError("not one expression", text, 0)
    _check_depth(trees[0], lexemes, text)
    return trees[0]


def lexeme_of(node: exp.Expr, lexemes: list[Lexeme]) -> Lexeme:
    """The lexeme behind a leaf: a literal, a name or the name of a function."""
    return lexemes[int(node.name)]


def position_of(node: exp.Expr, lexemes: list[Lexeme]) -> int:
    """Where a node begins in the text."""
    leaves = (leaf for leaf in node.walk() if isinstance(leaf, (exp.Literal, exp.Identifier, exp.Anonymous)))
    return min((lexeme_of(leaf, lexemes).start for leaf in leaves), default=0)


# What is open, and the lexeme that closes it. `TEXT` is the whole text.
_Open = Enum("_Open", "TEXT BRACKET CALL IN_LIST INDEX CASE")
_CLOSER: Final = {
    **dict.fromkeys((_Open.BRACKET, _Open.CALL, _Open.IN_LIST), ")"),
    _Open.INDEX: "]",
    _Open.CASE: "END",
}


@dataclass(slots=True)
class _Level:
    """An open bracket, CASE or the whole text; `compared`, `between` and `term` are of its current clause."""

    kind: _Open
    opener: Lexeme
    depth: int
    compared: Lexeme | None = None
    between: Lexeme | None = None
    term: str = ""
    stage: str = "CASE"

    def next_clause(self) -> None:
        self.compared, self.between, self.term = None, None, ""


class _Gate:
    """Reads lexemes in turn; `wants_value` says whether an operand or an operator must come next."""

    def __init__(self, lexemes: list[Lexeme], text: str):
        self.lexemes, self.text = lexemes, text
        self.at = 0
        self.wants_value = True
        self.prefixes = 0
        self.end = Lexeme(Kind.END, "", len(text.rstrip()), len(text))
        self.levels = [_Level(_Open.TEXT, self.end, 0)]

    @property
    def level(self) -> _Level:
        return self.levels[-1]

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
        if len(self.levels) > 1:
            opener = self.level.opener
            bracket = "(" if self.level.kind is _Open.CALL else ""
            raise self.refused(f"this {opener.text}{bracket} is never closed", opener)
        self.close_clause()

    def refused(self, problem: str, lexeme: Lexeme, hint: str = "") -> PredicateError:
        return PredicateError(problem, self.text, lexeme.start, hint)

    def because(self, reason: tuple[str, str], lexeme: Lexeme) -> PredicateError:
        return self.refused(reason[0], lexeme, reason[1])

    def peek(self, ahead: int = 0) -> Lexeme:
        index = self.at + ahead
        return self.lexemes[index] if index < len(self.lexemes) else self.end

    def admit(self, lexeme: Lexeme) -> None:
        """Refuse words and functions that no predicate may use, whatever stands around them."""
        word = lexeme.text.upper()
        single = isinstance(lexeme.value, tuple) and len(lexeme.value) == 1
        if (lexeme.kind is Kind.CALL or single) and word in REFUSED_WORDS:
            raise self.because(REFUSED_WORDS[word], lexeme)
        if lexeme.kind is Kind.CALL and not is_known(lexeme.text):
            raise self.because(refusal(lexeme.text), lexeme)

    def value(self, lexeme: Lexeme) -> None:
        if lexeme.kind in (Kind.LITERAL, Kind.TYPE, Kind.NAME):
            self.wants_value, self.prefixes = False, 0
        elif lexeme.kind is Kind.CALL:
            self.at += 1
            self.open(_Open.CALL, lexeme)
        elif lexeme.text == "(":
            self.open(_Open.BRACKET, lexeme)
        elif lexeme.text == ")" and self.level.kind is _Open.CALL and self.lexemes[self.at - 2].text == "(":
            self.close(lexeme)
        elif lexeme.text in ("NOT", "!", "-"):
            self.prefix(lexeme)
        elif lexeme.text == "CASE":
            self.open(_Open.CASE, lexeme)
        elif lexeme.text == "WHEN" and self.lexemes[self.at - 2].text == "CASE":
            self.level.stage = "WHEN"
        else:
            raise self.no_value(lexeme)

    def no_value(self, lexeme: Lexeme) -> PredicateError:
        if lexeme.text in REFUSED_WORDS:
            return self.because(REFUSED_WORDS[lexeme.text], lexeme)
        if lexeme.text in REFUSED_SYMBOLS:
            return self.because(REFUSED_SYMBOLS[lexeme.text], lexeme)
        return self.refused(f"expected a value, found {brief(lexeme.text)}", lexeme)

    def prefix(self, lexeme: Lexeme) -> None:
        before = self.lexemes[self.at - 2].text if self.at > 1 else "("
        starts = before in _BEFORE_NOT and self.level.compared is None
        if lexeme.text != "-" and not starts:
            raise self.refused("NOT stands before a whole condition", lexeme, "put NOT (...) in brackets")
        self.prefixes += 1
        self.check_depth(self.level.depth + self.prefixes, lexeme)

    def check_depth(self, depth: int, lexeme: Lexeme) -> None:
        if depth > MAX_NESTING:
            problem = f"nested too deeply: more than {MAX_NESTING} levels"
            raise self.refused(problem, lexeme, "compute a part of it as a column before the join")

    def open(self, kind: _Open, opener: Lexeme) -> None:
        depth = self.level.depth + self.prefixes + 1
        self.check_depth(depth, opener)
        self.levels.append(_Level(kind, opener, depth))
        self.wants_value, self.prefixes = True, 0

    def close(self, lexeme: Lexeme) -> None:
        if _CLOSER.get(self.level.kind) != lexeme.text:
            raise self.refused(f"this {lexeme.text} closes nothing", lexeme)
        self.close_clause()
        self.levels.pop()
        self.wants_value, self.prefixes = False, 0

    def close_clause(self) -> None:
        if self.level.between:
            raise self.refused("BETWEEN needs AND: x BETWEEN low AND high", self.level.between)
        self.level.next_clause()

    def after_value(self, lexeme: Lexeme) -> None:
        text = lexeme.text
        if lexeme.kind not in (Kind.WORD, Kind.SYMBOL):
            problem = f"an operator is missing before {brief(text)}"
            raise self.refused(problem, lexeme, "AND, OR, =, <, + or a comma?")
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
        level, text = self.level, lexeme.text
        if text in _TERMS:
            term = "||" if text == "||" else "+"
            if level.term and level.term != term:
                raise self.refused(f"|| and {text} need brackets to say which comes first", lexeme)
            level.term = term
        self.wants_value = True

    def comparison(self, lexeme: Lexeme) -> None:
        level = self.level
        if level.compared:
            problem = f"{level.compared.text} and {lexeme.text} need brackets to say which comes first"
            raise self.refused(problem, lexeme, "write (a = b) = c, or a = b AND b = c")
        level.compared, level.term = lexeme, ""
        self.wants_value = True
        if lexeme.text == "BETWEEN":
            level.between = lexeme
        elif lexeme.text == "IN":
            self.in_list(lexeme)
        elif lexeme.text == "IS":
            self.is_test(lexeme)

    def in_list(self, lexeme: Lexeme) -> None:
        if self.peek().text != "(":
            raise self.refused("IN needs a list in brackets", lexeme, "write x IN (1, 2)")
        self.at += 1
        self.open(_Open.IN_LIST, lexeme)

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
        level = self.level
        if lexeme.text == "AND" and level.between:
            level.between, level.term = None, ""
        else:
            self.close_clause()
        self.wants_value = True

    def punctuation(self, lexeme: Lexeme) -> None:
        text, level = lexeme.text, self.level
        if text == "[":
            self.open(_Open.INDEX, lexeme)
        elif text == "." and self.peek().kind is Kind.FIELD:
            self.at += 1
        elif text == "," and level.kind in (_Open.CALL, _Open.IN_LIST):
            self.close_clause()
            self.wants_value = True
        elif text == ",":
            hint = "compare the columns one by one, joined by AND"
            raise self.refused("a list is not a value", lexeme, hint)
        elif level.kind is _Open.CASE and text in _CASE_ORDER[level.stage]:
            self.case_word(lexeme)
        elif text in REFUSED_WORDS:
            raise self.because(REFUSED_WORDS[text], lexeme)
        else:
            raise self.refused(f"{brief(text)} is not allowed here", lexeme)

    def case_word(self, lexeme: Lexeme) -> None:
        self.close_clause()
        if lexeme.text == "END":
            self.close(lexeme)
        else:
            self.level.stage = lexeme.text
            self.wants_value = True


_TOKENS: Final = Spark.tokenizer_class.SINGLE_TOKENS | Spark.tokenizer_class.KEYWORDS
_OPAQUE: Final = {
    Kind.LITERAL: TokenType.NUMBER,
    Kind.TYPE: TokenType.NUMBER,
    Kind.NAME: TokenType.IDENTIFIER,
    Kind.FIELD: TokenType.IDENTIFIER,
    Kind.CALL: TokenType.VAR,
}


class _StructureOnly(SparkParser):
    FUNCTIONS: ClassVar = {}
    FUNCTION_PARSERS: ClassVar = {}
    NO_PAREN_FUNCTIONS: ClassVar = {}
    NO_PAREN_FUNCTION_PARSERS: ClassVar = {"CASE": SparkParser.NO_PAREN_FUNCTION_PARSERS["CASE"]}


def _token(index: int, lexeme: Lexeme) -> Token:
    """The index goes into `col`, which sqlglot's errors carry."""
    token_type = _OPAQUE.get(lexeme.kind) or _TOKENS[lexeme.text]
    text = str(index) if lexeme.kind in _OPAQUE else lexeme.text
    return Token(token_type, text, 1, index, lexeme.start, lexeme.end - 1)


def _syntax_error(error: SqlglotError, lexemes: list[Lexeme], text: str) -> PredicateError:
    details = getattr(error, "errors", None) or [{}]
    index = details[0].get("col")
    found = lexemes[index] if isinstance(index, int) and index < len(lexemes) else None
    problem = f"not a condition that can be read, at {brief(found.text)}" if found else "not a condition"
    return PredicateError(problem, text, found.start if found else 0)


def _check_depth(root: exp.Expr, lexemes: list[Lexeme], text: str) -> None:
    """Chains of AND or OR count as one level: they become one call with many arguments."""
    todo = [(root, 1)]
    while todo:
        node, depth = todo.pop()
        if depth > MAX_TREE_DEPTH:
            problem = f"too many operators in a row: more than {MAX_TREE_DEPTH} levels"
            hint = "compute a part as a column first"
            raise PredicateError(problem, text, position_of(node, lexemes), hint)
        for child in node.iter_expressions():
            chained = isinstance(node, (exp.And, exp.Or)) and type(child) is type(node)
            todo.append((child, depth if chained else depth + 1))
