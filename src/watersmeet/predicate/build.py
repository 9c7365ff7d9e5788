"""Syntax tree to typed tree: the second allow-list (classes of nodes), names resolved, types given.

Rewritten on the way, each into what Spark itself makes of it:

    x BETWEEN a AND b        x >= a AND x <= b
    x IS NOT TRUE            NOT (x <=> TRUE)
    x IS DISTINCT FROM y     NOT (x <=> y)
    CASE x WHEN a THEN ...   CASE WHEN x = a THEN ...
    if(c, a, b)              CASE WHEN c THEN a ELSE b END
    a || b, nvl(a, b)        concat(a, b), coalesce(a, b)

Chains of AND and of OR are one call with all their arguments, so that long conditions stay shallow.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from sqlglot import exp

from watersmeet.errors import PredicateError
from watersmeet.model.expression import Call, Column, Expression, Literal
from watersmeet.model.types import BOOLEAN, VOID, SqlType, parse_type
from watersmeet.predicate import check, functions, names
from watersmeet.predicate.arithmetic import UNKNOWN, result_type, widest
from watersmeet.predicate.grammar import lexeme_of, position_of
from watersmeet.predicate.growth import AMPLIFIERS, MOST_GROWTH, growth
from watersmeet.predicate.lexemes import Lexeme, Name, Part

# BETWEEN and CASE repeat their operand; nested repetition would grow without bound.
MAX_REPEATED_NODES: Final = 100

_COMPARISONS: Final[dict[type[exp.Expr], str]] = {
    exp.EQ: "=",
    exp.NullSafeEQ: "<=>",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
}
_ARITHMETIC: Final[dict[type[exp.Expr], str]] = {
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.Mod: "%",
    exp.IntDiv: "div",
}
_MATCHES: Final[dict[type[exp.Expr], str]] = {exp.Like: "like", exp.ILike: "ilike", exp.RegexpLike: "rlike"}


@dataclass(frozen=True, slots=True)
class Conjunct:
    expression: Expression
    position: int


def negation(condition: Expression) -> Call:
    return Call("not", (condition,), BOOLEAN)


def size_of(expression: Expression) -> int:
    return 1 + sum(map(size_of, expression.args)) if isinstance(expression, Call) else 1


class Builder:
    """Reads nodes of one text. Every method returns a typed expression or raises PredicateError."""

    def __init__(self, scope: names.Scope, lexemes: list[Lexeme], text: str):
        self.scope, self.lexemes, self.text = scope, lexemes, text
        self.readers: dict[type[exp.Expr], Callable[[exp.Expr], Expression]] = {
            exp.Paren: lambda node: self.build(node.this),
            exp.Literal: self.literal,
            exp.Column: self.column,
            exp.And: lambda node: self.connected(node, "and"),
            exp.Or: lambda node: self.connected(node, "or"),
            exp.Not: lambda node: negation(self.condition(node.this)),
            exp.NullSafeNEQ: lambda node: negation(self.compared("<=>", node, node.this, node.expression)),
            exp.Neg: self.negative,
            exp.DPipe: self.concatenated,
            exp.Between: self.between,
            exp.In: self.in_list,
            exp.Is: self.is_test,
            exp.Case: self.case,
            exp.Anonymous: self.function,
            exp.Bracket: self.element,
            exp.Dot: self.field,
            **dict.fromkeys(_COMPARISONS, self.comparison),
            **dict.fromkeys(_ARITHMETIC, self.arithmetic),
            **dict.fromkeys(_MATCHES, self.match),
        }

    def build(self, node: exp.Expr) -> Expression:
        reader = self.readers.get(type(node))
        if reader is None:
            raise self.refused(f"{type(node).__name__.lower()} is not allowed in a predicate", node)
        return reader(node)

    def conjuncts(self, root: exp.Expr) -> list[Conjunct]:
        """The conditions that must all hold, with their places."""
        found: list[Conjunct] = []
        if isinstance(root.unnest(), exp.Literal) and self.build(root).type == VOID:
            raise self.refused("NULL is not a condition", root, "a condition compares something: l.k = r.k")
        for node in _chain(root, exp.And):
            condition, place = self.condition(node), position_of(node, self.lexemes)
            parts = condition.args if isinstance(condition, Call) and condition.op == "and" else (condition,)
            found += [Conjunct(part, place) for part in parts]
        return found

    def refused(self, problem: str, node: exp.Expr, hint: str = "") -> PredicateError:
        return PredicateError(problem, self.text, position_of(node, self.lexemes), hint)

    def call(self, op: str, args: tuple[Expression, ...], type_: SqlType, node: exp.Expr) -> Call:
        in_time = type_.name in check.MOMENTS or any(arg.type.name in check.MOMENTS for arg in args)
        if (in_time or op in functions.TIME_FUNCTIONS) and any(map(check.reads_clock, args)):
            problem = "text that is turned into a time may read the clock"
            raise self.refused(problem, node, "write DATE '2026-01-31' or TIMESTAMP '2026-01-31 12:30:00'")
        return Call(op, args, type_)

    def literal(self, node: exp.Expr) -> Expression:
        value = lexeme_of(node, self.lexemes).value
        if not isinstance(value, Literal):
            raise self.refused("a type is not a value", node)
        return value

    def column(self, node: exp.Expr) -> Expression:
        name = lexeme_of(node, self.lexemes).value
        assert isinstance(name, Name)
        return names.resolve(name, self.scope, self.text)

    def condition(self, node: exp.Expr) -> Expression:
        built = self.build(node)
        if check.not_boolean(built.type):
            hint = "a condition compares something: l.k = r.k"
            raise self.refused(f"{check.described(built)} is not a condition", node, hint)
        return built

    def connected(self, node: exp.Expr, op: str) -> Expression:
        args: list[Expression] = []
        for part in _chain(node, type(node)):
            built = self.condition(part)
            args += built.args if isinstance(built, Call) and built.op == op else [built]
        return Call(op, tuple(args), BOOLEAN)

    def comparison(self, node: exp.Expr) -> Expression:
        return self.compared(_COMPARISONS[type(node)], node, node.this, node.expression)

    def compared(self, op: str, node: exp.Expr, left: exp.Expr, right: exp.Expr) -> Call:
        return self.comparable(op, self.build(left), self.build(right), node)

    def comparable(self, op: str, left: Expression, right: Expression, node: exp.Expr) -> Call:
        for side in (left, right):
            if check.incomparable(side.type):
                raise self.refused(
                    f"Spark cannot compare or join on {check.described(side)}", node, "use its parts"
                )
        if check.cannot_compare(left.type, right.type, self.scope.ansi):
            problem = f"cannot compare {check.described(left)} with {check.described(right)}"
            raise self.refused(problem, node, "cast one side, or compare other columns")
        return self.call(op, (left, right), BOOLEAN, node)

    def arithmetic(self, node: exp.Expr) -> Expression:
        op, left, right = _ARITHMETIC[type(node)], self.build(node.this), self.build(node.expression)
        for side in (left, right):
            if check.not_arithmetic(op, side.type):
                raise self.refused(
                    f"{op} does not work on {check.described(side)}", node, "cast it to a number"
                )
        return self.call(op, (left, right), result_type(op, left, right, self.scope.ansi), node)

    def negative(self, node: exp.Expr) -> Expression:
        return self.negated(self.build(node.this), node)

    def negated(self, value: Expression, node: exp.Expr) -> Expression:
        if check.not_arithmetic("neg", value.type):
            raise self.refused(f"- does not work on {check.described(value)}", node, "cast it to a number")
        known = value.type.numeric or value.type.name.startswith("interval")
        return Call("neg", (value,), value.type if known else UNKNOWN)

    def concatenated(self, node: exp.Expr) -> Expression:
        return self.applied("concat", (self.build(node.this), self.build(node.expression)), node)

    def between(self, node: exp.Expr) -> Expression:
        operand = self.repeated(node.this)
        low = self.comparable(">=", operand, self.build(node.args["low"]), node)
        high = self.comparable("<=", operand, self.build(node.args["high"]), node)
        return Call("and", (low, high), BOOLEAN)

    def repeated(self, node: exp.Expr) -> Expression:
        operand = self.build(node)
        if size_of(operand) > MAX_REPEATED_NODES:
            raise self.refused(
                "the value before BETWEEN or after CASE is too large", node, "compute it first"
            )
        return operand

    def in_list(self, node: exp.Expr) -> Expression:
        needle = self.build(node.this)
        if not node.expressions or set(node.args) - {"this", "expressions"}:
            raise self.refused("IN needs a list of values", node, "write x IN (1, 2)")
        items = tuple(self.build(item) for item in node.expressions)
        for item in items:
            self.comparable("=", needle, item, node)
        return self.call("in", (needle, *items), BOOLEAN, node)

    def is_test(self, node: exp.Expr) -> Expression:
        value, test = self.build(node.this), node.expression
        if isinstance(test, exp.Null):
            return Call("is_null", (value,), BOOLEAN)
        if not isinstance(test, exp.Boolean):
            raise self.refused("IS needs NULL, TRUE or FALSE", node)
        return self.comparable("<=>", value, Literal(bool(test.this), BOOLEAN), node)

    def match(self, node: exp.Expr) -> Expression:
        sides = (self.build(node.this), self.build(node.expression))
        matched = self.call(_MATCHES[type(node)], sides, BOOLEAN, node)
        return negation(matched) if node.args.get("negate") else matched

    def case(self, node: exp.Expr) -> Expression:
        operand = self.repeated(node.this) if node.this else None
        args: list[Expression] = []
        for branch in node.args["ifs"]:
            if operand is None:
                args.append(self.condition(branch.this))
            else:
                args.append(self.comparable("=", operand, self.build(branch.this), branch))
            args.append(self.build(branch.args["true"]))
        default = node.args.get("default")
        args.append(self.build(default) if default else Literal(None, VOID))
        return self.cased(tuple(args), node)

    def cased(self, args: tuple[Expression, ...], node: exp.Expr) -> Expression:
        values = [*(arg.type for arg in args[1::2]), args[-1].type]
        return self.call("case", args, widest(values, self.scope.ansi), node)

    def function(self, node: exp.Expr) -> Expression:
        name, nodes = lexeme_of(node, self.lexemes).text, node.expressions
        if name in ("cast", "try_cast"):
            return self.cast(name, nodes, node)
        args = tuple(self.build(arg) for arg in nodes)
        if name in functions.CAST_FUNCTIONS or name in functions.OPERATORS:
            return self.operator(name, args, node)
        return self.applied(name, args, node)

    def cast(self, name: str, nodes: list[exp.Expr], node: exp.Expr) -> Expression:
        target = lexeme_of(nodes[-1], self.lexemes).value if len(nodes) == 2 else None
        if not isinstance(target, SqlType):
            raise self.refused(f"{name} needs a type", node, f"write {name}(x AS bigint)")
        return self.call(name, (self.build(nodes[0]),), target, node)

    def operator(self, name: str, args: tuple[Expression, ...], node: exp.Expr) -> Expression:
        if len(args) != 1:
            raise self.refused(f"{name}() takes 1 argument, got {len(args)}", node)
        if name in ("isnull", "isnotnull"):
            test = Call("is_null", args, BOOLEAN)
            return test if name == "isnull" else negation(test)
        if name == "negative":
            return self.negated(args[0], node)
        return self.call("cast", args, parse_type(name), node)

    def applied(self, name: str, args: tuple[Expression, ...], node: exp.Expr) -> Expression:
        function = functions.FUNCTIONS.get(name)
        if function is None:
            raise self.refused(functions.refusal(name)[0], node, functions.refusal(name)[1])
        if not function.least <= len(args) <= function.most:
            raise self.refused(functions.arity_problem(name, len(args)), node)
        misfit = functions.misfit(name, args)
        if misfit is not None:
            problem = f"{name}() takes array<float>, not {check.described(misfit)}"
            raise self.refused(problem, node, "cast it before the join: CAST(v AS ARRAY<FLOAT>)")
        if name == "if":
            return self.cased(args, node)
        call = self.call(function.name, args, function.type_of(args, self.scope.ansi), node)
        if function.name in AMPLIFIERS and growth(call) > MOST_GROWTH:
            raise self.refused(
                f"{name}() makes texts of up to {growth(call)} characters, more than the {MOST_GROWTH} that are allowed",
                node,
                "no executor holds that for every row: use a smaller number, or compute it as a column before the join",
            )
        return call

    def element(self, node: exp.Expr) -> Expression:
        collection = self.build(node.this)
        if len(node.expressions) != 1 or collection.type.name not in ("array", "map", "unknown"):
            hint = "write .field for a struct" if collection.type.name == "struct" else ""
            raise self.refused(f"{check.described(collection)} has no elements", node, hint)
        index = self.build(node.expressions[0])
        return self.call("[]", (collection, index), functions.element_type(collection.type), node)

    def field(self, node: exp.Expr) -> Expression:
        lexeme = lexeme_of(node.expression, self.lexemes)
        return names.field_of(self.build(node.this), Part(lexeme.text, lexeme.start), self.scope, self.text)


def last_name(expression: Expression) -> str | None:
    """The name that a plain column or field has by itself."""
    if isinstance(expression, Column):
        return expression.name
    if isinstance(expression, Call) and expression.op == "field":
        name = expression.args[1]
        return name.value if isinstance(name, Literal) and isinstance(name.value, str) else None
    return None


def _chain(root: exp.Expr, kind: type[exp.Expr]) -> list[exp.Expr]:
    """The operands of a chain of one connective, brackets around a link left out, in reading order."""
    operands: list[exp.Expr] = []
    todo = [root]
    while todo:
        node = todo.pop()
        bare = node
        while isinstance(bare, exp.Paren):
            bare = bare.this
        if type(bare) is kind:
            todo += [bare.expression, bare.this]
        else:
            operands.append(node)
    return operands
