"""Lexemes to a syntax tree: sqlglot's Spark parser, with all of its dictionaries of functions taken out.

sqlglot knows hundreds of functions and rewrites them for other dialects (`date_sub` becomes an addition,
`CAST` a try). Here every operand and function reaches it under an opaque number, so that it decides
structure only and cannot change a meaning. The numbers lead back to the lexemes.
"""

from __future__ import annotations

from typing import ClassVar, Final

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ErrorLevel, SqlglotError
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokenizer_core import Token, TokenType

from watersmeet.errors import PredicateError
from watersmeet.predicate.lex import brief
from watersmeet.predicate.lexemes import Lexeme

# Long sums are left-deep trees; the functions that walk the typed tree recurse.
MAX_TREE_DEPTH: Final = 100

_TYPES: Final = {
    "=": TokenType.EQ,
    "==": TokenType.EQ,
    "<=>": TokenType.NULLSAFE_EQ,
    "<>": TokenType.NEQ,
    "!=": TokenType.NEQ,
    "<": TokenType.LT,
    "<=": TokenType.LTE,
    ">": TokenType.GT,
    ">=": TokenType.GTE,
    "+": TokenType.PLUS,
    "-": TokenType.DASH,
    "*": TokenType.STAR,
    "/": TokenType.SLASH,
    "%": TokenType.MOD,
    "||": TokenType.DPIPE,
    "!": TokenType.NOT,
    "(": TokenType.L_PAREN,
    ")": TokenType.R_PAREN,
    "[": TokenType.L_BRACKET,
    "]": TokenType.R_BRACKET,
    ",": TokenType.COMMA,
    ".": TokenType.DOT,
    "REGEXP": TokenType.RLIKE,
}
_KINDS: Final = {
    "literal": TokenType.NUMBER,
    "type": TokenType.NUMBER,
    "name": TokenType.IDENTIFIER,
    "field": TokenType.IDENTIFIER,
    "call": TokenType.VAR,
}


class _StructureOnly(SparkParser):
    FUNCTIONS: ClassVar = {}
    FUNCTION_PARSERS: ClassVar = {}
    NO_PAREN_FUNCTIONS: ClassVar = {}
    NO_PAREN_FUNCTION_PARSERS: ClassVar = {"CASE": SparkParser.NO_PAREN_FUNCTION_PARSERS["CASE"]}


def parse(lexemes: list[Lexeme], text: str) -> exp.Expr:
    """One expression out of lexemes that the gate has passed."""
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


def _token(index: int, lexeme: Lexeme) -> Token:
    """The place goes into `col`, which is what sqlglot's errors carry."""
    token_type = _KINDS.get(lexeme.kind) or _TYPES.get(lexeme.text) or TokenType[lexeme.text]
    text = str(index) if lexeme.kind in _KINDS else lexeme.text
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
            raise PredicateError(
                problem, text, position_of(node, lexemes), "compute a part as a column first"
            )
        for child in node.iter_expressions():
            chained = isinstance(node, (exp.And, exp.Or)) and type(child) is type(node)
            todo.append((child, depth if chained else depth + 1))
