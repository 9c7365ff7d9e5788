"""Syntax tree to typed tree: names resolved against the inputs, types given and checked.

Names are `input.column` and `input.column.field`. Spark evaluates a predicate over one struct column for each input,
named like the input. A bare `k` would be another thing to Spark than to the reader, and `l` alone is the whole row:
both are refused.

Some syntax is rewritten on the way, each into what Spark itself makes of it:

    x BETWEEN a AND b        x >= a AND x <= b
    x IS NOT TRUE            NOT (x <=> TRUE)
    x IS DISTINCT FROM y     NOT (x <=> y)
    CASE x WHEN a THEN ...   CASE WHEN x = a THEN ...
    if(c, a, b)              CASE WHEN c THEN a ELSE b END
    a || b, nvl(a, b)        concat(a, b), coalesce(a, b)

A chain of AND or of OR becomes one call with all its arguments, so that long conditions stay shallow. The classes of
nodes are an allow-list, the second one after the grammar.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from sqlglot import exp

from watersmeet.errors import PredicateError
from watersmeet.model.expression import Call, Column, Expression, Literal, columns_of, inputs_of
from watersmeet.model.types import BOOLEAN, STRING, VOID, Schema, SqlType, parse_type
from watersmeet.predicate import functions
from watersmeet.predicate.grammar import lexeme_of, position_of
from watersmeet.predicate.lex import Lexeme, NamePart, did_you_mean
from watersmeet.predicate.literals import brief
from watersmeet.predicate.properties import AMPLIFIERS, MOST_GROWTH, growth, reads_clock
from watersmeet.predicate.type_rules import (
    MOMENTS,
    UNKNOWN,
    cannot_compare,
    incomparable,
    not_arithmetic,
    not_boolean,
    result_type,
    widest,
)

# BETWEEN and CASE repeat their operand; nested repetition would grow without bound.
MAX_REPEATED_NODES: Final = 100
# More names than this in a message hide the message.
_SHOWN_NAMES: Final = 12


def same_names(name: str, known: Iterable[str], case_sensitive: bool) -> list[str]:
    """The known names that Spark takes for `name`."""
    if case_sensitive:
        return [other for other in known if other == name]
    lower = name.lower()
    return [other for other in known if other.lower() == lower]


@dataclass(frozen=True, slots=True)
class Scope:
    """The columns that a text may name, by input, and how Spark will read the text."""

    schemas: Mapping[str, Schema]
    ansi: bool
    case_sensitive: bool

    @property
    def inputs(self) -> tuple[str, ...]:
        return tuple(self.schemas)

    def in_order(self, one: Expression, other: Expression) -> tuple[Expression, Expression] | None:
        """Two sides of a comparison, in the order of their inputs; None unless each reads one input of its own."""
        read, other_read = inputs_of(one), inputs_of(other)
        if read == other_read or len(read) != 1 or len(other_read) != 1:
            return None
        (name,), (other_name,) = read, other_read
        first = next(known for known in self.schemas if known in (name, other_name))
        return (one, other) if first == name else (other, one)

    def resolve(self, parts: tuple[NamePart, ...], text: str) -> Expression:
        """The column that a dotted name means, with the fields behind it."""
        if len(parts) == 1:
            raise self._unqualified(parts[0], text)
        first, second, *rest = parts
        name = self.input_named(first, text)
        schema = self.schemas[name]
        column = self._one_of(second, schema, text, f"a column of {name}", f"{name} has")
        expression: Expression = Column(name, column, schema[column])
        for part in rest:
            expression = self.field_of(expression, part, text)
        return expression

    def input_named(self, part: NamePart, text: str) -> str:
        return self._one_of(part, self.schemas, text, "an input", "the inputs are")

    def field_of(self, struct: Expression, part: NamePart, text: str) -> Expression:
        """`struct.field`; a struct of unknown type keeps the field's name as written."""
        type_ = struct.type
        if type_ == UNKNOWN:
            return Call("field", (struct, Literal(part.text, STRING)), type_)
        if type_.name != "struct":
            hints = {"array": "take one element first: l.items[0].name", "map": "write l.tags['name']"}
            problem = f"{brief(part.text)}: {brief(str(type_))} has no fields"
            raise PredicateError(problem, text, part.start, hints.get(type_.name, ""))
        fields = {field.name: field.type for field in type_.fields}
        found = self._one_of(part, fields, text, "a field of the struct", "it has")
        return Call("field", (struct, Literal(found, STRING)), fields[found])

    def _one_of(self, part: NamePart, names: Iterable[str], text: str, what: str, listed: str) -> str:
        found = same_names(part.text, names, self.case_sensitive)
        if len(found) == 1:
            return found[0]
        if found:
            problem = (
                f"{brief(part.text)} is ambiguous: {brief(' and '.join(found))} differ in letter case only"
            )
            raise PredicateError(problem, text, part.start, "rename one of them before the join")
        hint = f"{did_you_mean(part.text, names)}{listed} {_listed(list(names))}"
        raise PredicateError(f"{brief(part.text)} is not {what}", text, part.start, hint)

    def _unqualified(self, part: NamePart, text: str) -> PredicateError:
        examples = {name: f"{name}.{next(iter(schema), 'column')}" for name, schema in self.schemas.items()}
        whole = same_names(part.text, self.schemas, self.case_sensitive)
        if whole:
            hint = f"name one of its columns: {examples[whole[0]]}"
            return PredicateError(f"{whole[0]} is a whole row", text, part.start, hint)
        owned = [
            f"{name}.{brief(column)}"
            for name, schema in self.schemas.items()
            for column in same_names(part.text, schema, self.case_sensitive)
        ]
        near = did_you_mean(part.text, [column for schema in self.schemas.values() for column in schema])
        hint = f"{'' if owned else near}write {' or '.join(owned or examples.values())}"
        return PredicateError(f"{brief(part.text)} has no input before it", text, part.start, hint)


def make_scope(schemas: object, ansi: bool, case_sensitive: bool) -> Scope:
    """The scope of a join of two or more inputs; their names must differ for Spark."""
    if not isinstance(schemas, Mapping) or len(schemas) < 2:
        found = ", ".join(map(str, schemas)) if isinstance(schemas, Mapping) else type(schemas).__name__
        raise PredicateError(
            f"a join has two or more inputs, got {found or 'none'}", hint="name each input once"
        )
    for name in schemas:
        same = same_names(name, schemas, case_sensitive)
        if len(same) > 1:
            problem = f"the inputs {' and '.join(same)} differ in letter case only"
            raise PredicateError(problem, hint="rename one")
    return Scope(schemas, ansi, case_sensitive)


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN_NAMES} more" if len(names) > _SHOWN_NAMES else ""
    return (", ".join(map(brief, names[:_SHOWN_NAMES])) or "no columns") + more


def described(expression: Expression) -> str:
    """A type and where it comes from, for messages: `date (r.day)`."""
    if isinstance(expression, Literal):
        return f"{expression.type} ({brief(repr(expression.value))})"
    read = dict.fromkeys(f"{column.input}.{column.name}" for column in columns_of(expression))
    type_ = brief(str(expression.type))
    return f"{type_} ({brief(', '.join(read))})" if read else type_


_COMPARISONS: Final[dict[type[exp.Expr], str]] = {
    exp.EQ: "=", exp.NullSafeEQ: "<=>", exp.NEQ: "<>",
    exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">=",
}  # fmt: skip
_ARITHMETIC: Final[dict[type[exp.Expr], str]] = {
    exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.Mod: "%", exp.IntDiv: "div",
}  # fmt: skip
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

    def __init__(self, scope: Scope, lexemes: list[Lexeme], text: str):
        self.scope, self.lexemes, self.text = scope, lexemes, text
        self.readers: dict[type[exp.Expr], Callable[[exp.Expr], Expression]] = {
            exp.Paren: lambda node: self.build(node.this),
            exp.Literal: self.literal,
            exp.Column: self.column,
            exp.And: lambda node: self.connected(node, "and"),
            exp.Or: lambda node: self.connected(node, "or"),
            exp.Not: lambda node: negation(self.condition(node.this)),
            exp.NullSafeNEQ: lambda node: negation(self.compared("<=>", *self.both(node), node)),
            exp.Neg: lambda node: self.negated(self.build(node.this), node),
            exp.DPipe: lambda node: self.applied("concat", self.both(node), node),
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
        in_time = type_.name in MOMENTS or any(arg.type.name in MOMENTS for arg in args)
        if (in_time or op in functions.TIME_FUNCTIONS) and any(map(reads_clock, args)):
            problem = "text that is turned into a time may read the clock"
            raise self.refused(problem, node, "write DATE '2026-01-31' or TIMESTAMP '2026-01-31 12:30:00'")
        return Call(op, args, type_)

    def literal(self, node: exp.Expr) -> Expression:
        value = lexeme_of(node, self.lexemes).value
        if not isinstance(value, Literal):
            raise self.refused("a type is not a value", node)
        return value

    def column(self, node: exp.Expr) -> Expression:
        parts = lexeme_of(node, self.lexemes).value
        assert isinstance(parts, tuple)
        return self.scope.resolve(parts, self.text)

    def condition(self, node: exp.Expr) -> Expression:
        built = self.build(node)
        if not_boolean(built.type):
            hint = "a condition compares something: l.k = r.k"
            raise self.refused(f"{described(built)} is not a condition", node, hint)
        return built

    def connected(self, node: exp.Expr, op: str) -> Expression:
        args: list[Expression] = []
        for part in _chain(node, type(node)):
            built = self.condition(part)
            args += built.args if isinstance(built, Call) and built.op == op else [built]
        return Call(op, tuple(args), BOOLEAN)

    def both(self, node: exp.Expr) -> tuple[Expression, Expression]:
        """Both operands of a binary operator."""
        return self.build(node.this), self.build(node.expression)

    def comparison(self, node: exp.Expr) -> Expression:
        return self.compared(_COMPARISONS[type(node)], *self.both(node), node)

    def compared(self, op: str, left: Expression, right: Expression, node: exp.Expr) -> Call:
        for side in (left, right):
            if incomparable(side.type):
                problem = f"Spark cannot compare or join on {described(side)}"
                raise self.refused(problem, node, "use its parts")
        if cannot_compare(left.type, right.type, self.scope.ansi):
            problem = f"cannot compare {described(left)} with {described(right)}"
            raise self.refused(problem, node, "cast one side, or compare other columns")
        return self.call(op, (left, right), BOOLEAN, node)

    def arithmetic(self, node: exp.Expr) -> Expression:
        op, sides = _ARITHMETIC[type(node)], self.both(node)
        for side in sides:
            if not_arithmetic(op, side.type):
                raise self.refused(f"{op} does not work on {described(side)}", node, "cast it to a number")
        return self.call(op, sides, result_type(op, *sides, self.scope.ansi), node)

    def negated(self, value: Expression, node: exp.Expr) -> Expression:
        if not_arithmetic("neg", value.type):
            raise self.refused(f"- does not work on {described(value)}", node, "cast it to a number")
        known = value.type.numeric or value.type.name.startswith("interval")
        return Call("neg", (value,), value.type if known else UNKNOWN)

    def between(self, node: exp.Expr) -> Expression:
        operand = self.repeated(node.this)
        low = self.compared(">=", operand, self.build(node.args["low"]), node)
        high = self.compared("<=", operand, self.build(node.args["high"]), node)
        return Call("and", (low, high), BOOLEAN)

    def repeated(self, node: exp.Expr) -> Expression:
        operand = self.build(node)
        if size_of(operand) > MAX_REPEATED_NODES:
            problem = "the value before BETWEEN or after CASE is too large"
            raise self.refused(problem, node, "compute it first")
        return operand

    def in_list(self, node: exp.Expr) -> Expression:
        needle = self.build(node.this)
        if not node.expressions or set(node.args) - {"this", "expressions"}:
            raise self.refused("IN needs a list of values", node, "write x IN (1, 2)")
        items = tuple(self.build(item) for item in node.expressions)
        for item in items:
            self.compared("=", needle, item, node)
        return self.call("in", (needle, *items), BOOLEAN, node)

    def is_test(self, node: exp.Expr) -> Expression:
        value, test = self.build(node.this), node.expression
        if isinstance(test, exp.Null):
            return Call("is_null", (value,), BOOLEAN)
        if not isinstance(test, exp.Boolean):
            raise self.refused("IS needs NULL, TRUE or FALSE", node)
        return self.compared("<=>", value, Literal(bool(test.this), BOOLEAN), node)

    def match(self, node: exp.Expr) -> Expression:
        matched = self.call(_MATCHES[type(node)], self.both(node), BOOLEAN, node)
        return negation(matched) if node.args.get("negate") else matched

    def case(self, node: exp.Expr) -> Expression:
        operand = self.repeated(node.this) if node.this else None
        args: list[Expression] = []
        for branch in node.args["ifs"]:
            if operand is None:
                args.append(self.condition(branch.this))
            else:
                args.append(self.compared("=", operand, self.build(branch.this), branch))
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
        function = functions.FUNCTIONS[name]
        if not function.least <= len(args) <= function.most:
            raise self.refused(functions.arity_problem(name, len(args)), node)
        misfit = functions.misfit(name, args)
        if misfit is not None:
            problem = f"{name}() takes array<float>, not {described(misfit)}"
            raise self.refused(problem, node, "cast it before the join: CAST(v AS ARRAY<FLOAT>)")
        if name == "if":
            return self.cased(args, node)
        call = self.call(function.name, args, function.type_of(args, self.scope.ansi), node)
        if function.name in AMPLIFIERS and growth(call) > MOST_GROWTH:
            problem = f"{name}() makes texts of up to {growth(call)} characters, more than the {MOST_GROWTH} allowed"
            hint = "executors run out of memory: use a smaller number, or compute a column before the join"
            raise self.refused(problem, node, hint)
        return call

    def element(self, node: exp.Expr) -> Expression:
        collection = self.build(node.this)
        if len(node.expressions) != 1 or collection.type.name not in ("array", "map", "unknown"):
            hint = "write .field for a struct" if collection.type.name == "struct" else ""
            raise self.refused(f"{described(collection)} has no elements", node, hint)
        index = self.build(node.expressions[0])
        return self.call("[]", (collection, index), functions.element_type(collection.type), node)

    def field(self, node: exp.Expr) -> Expression:
        lexeme = lexeme_of(node.expression, self.lexemes)
        part = NamePart(lexeme.text, lexeme.start)
        return self.scope.field_of(self.build(node.this), part, self.text)


def _chain(root: exp.Expr, kind: type[exp.Expr]) -> list[exp.Expr]:
    """The operands of a chain of one connective, brackets around a link left out, in reading order."""
    operands: list[exp.Expr] = []
    todo = [root]
    while todo:
        node = todo.pop()
        bare = node.unnest()
        if type(bare) is kind:
            todo += [bare.expression, bare.this]
        else:
            operands.append(node)
    return operands
