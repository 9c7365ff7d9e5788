"""SQL types, as Spark names them, without Spark.

Every layer above `spark/` describes types by `SqlType`. It is parsed from Spark's own `simpleString()`
(`"decimal(10,2)"`, `"struct<a:int,b:array<string>>"`) or derived from an Arrow type, so the predicate checker and the
local driver agree.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pyarrow as pa

# Widest last: the position is the precedence of numeric promotion.
INTEGRALS: Final = ("tinyint", "smallint", "int", "bigint")
FLOATS: Final = ("float", "double")

# Decimal digits that hold every value of an integral type (Spark's DecimalType.forType).
INTEGRAL_DIGITS: Final = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 20}
MAX_DECIMAL_DIGITS: Final = 38

_ALIASES: Final = {
    "byte": "tinyint",
    "short": "smallint",
    "integer": "int",
    "long": "bigint",
    "real": "float",
    "dec": "decimal",
    "numeric": "decimal",
    "bool": "boolean",
    "timestamp_ltz": "timestamp",
}


@dataclass(frozen=True, slots=True)
class Field:
    name: str
    type: SqlType


@dataclass(frozen=True, slots=True)
class SqlType:
    """One Spark SQL type. `name` is the head of Spark's simple string, lower case.

    >>> str(parse_type("struct<a:int,b:decimal(10,2)>"))
    'struct<a:int,b:decimal(10,2)>'
    """

    name: str
    precision: int | None = None
    scale: int | None = None
    collation: str | None = None
    element: SqlType | None = None
    value: SqlType | None = None
    fields: tuple[Field, ...] = ()

    def __str__(self) -> str:
        if self.name == "decimal":
            return f"decimal({self.precision},{self.scale})"
        if self.name == "array":
            return f"array<{self.element}>"
        if self.name == "map":
            return f"map<{self.element},{self.value}>"
        if self.name == "struct":
            return f"struct<{','.join(f'{f.name}:{f.type}' for f in self.fields)}>"
        if self.collation:
            return f"{self.name} collate {self.collation}"
        return self.name

    @property
    def integral(self) -> bool:
        return self.name in INTEGRALS

    @property
    def floating(self) -> bool:
        return self.name in FLOATS

    @property
    def numeric(self) -> bool:
        return self.integral or self.floating or self.name == "decimal"

    @property
    def nested(self) -> bool:
        return self.name in ("array", "map", "struct")

    @property
    def stringlike(self) -> bool:
        return self.name == "string" or self.name.startswith(("char", "varchar"))


Schema = dict[str, SqlType]
"""The columns of one input, in order."""


def decimal(precision: int, scale: int) -> SqlType:
    return SqlType("decimal", precision=precision, scale=scale)


BOOLEAN: Final = SqlType("boolean")
INT: Final = SqlType("int")
BIGINT: Final = SqlType("bigint")
FLOAT: Final = SqlType("float")
DOUBLE: Final = SqlType("double")
STRING: Final = SqlType("string")
BINARY: Final = SqlType("binary")
DATE: Final = SqlType("date")
TIMESTAMP: Final = SqlType("timestamp")
TIMESTAMP_NTZ: Final = SqlType("timestamp_ntz")
VOID: Final = SqlType("void")
VECTOR: Final = SqlType("array", element=FLOAT)


def parse_type(text: str) -> SqlType:
    """Parse Spark's simple string. An unknown type name is kept, so that no type is refused here."""
    source = text.strip()
    head, _, rest = source.partition("<")
    word = head.strip().lower()
    if rest and word == "array":
        return SqlType("array", element=parse_type(rest.rstrip()[:-1]))
    if rest and word == "map":
        key, value = _split(rest.rstrip()[:-1])
        return SqlType("map", element=parse_type(key), value=parse_type(value))
    if word == "struct":
        body = rest.rstrip()[:-1] if rest else ""
        return SqlType("struct", fields=tuple(_field(part) for part in _split(body)))
    if word.startswith(("decimal", "dec", "numeric")) and "(" in word:
        digits = word[word.index("(") + 1 : word.rindex(")")].split(",")
        return decimal(int(digits[0]), int(digits[1]) if len(digits) > 1 else 0)
    if word in ("decimal", "dec", "numeric"):
        return decimal(10, 0)
    base, _, collation = source.partition(" collate ")
    base = base.lower()
    return SqlType(_ALIASES.get(base, base), collation=collation.strip() or None)


def _field(part: str) -> Field:
    quoted = part.lstrip().startswith("`")
    end = part.index("`", part.index("`") + 1) + 1 if quoted else part.index(":")
    return Field(part[:end].strip().strip("`"), parse_type(part[part.index(":", end) + 1 :]))


def _split(body: str) -> list[str]:
    """Split on the commas outside brackets and quotes."""
    parts, depth, start, quoted = [], 0, 0, False
    for at, char in enumerate(body):
        quoted ^= char == "`"
        if quoted:
            continue
        depth += char in "<("
        depth -= char in ">)"
        if char == "," and depth == 0:
            parts.append(body[start:at])
            start = at + 1
    return [*parts, body[start:]] if body.strip() else []


def type_of_arrow(arrow: pa.DataType) -> SqlType:
    """The SQL type that Spark gives a column of this Arrow type."""
    simple = {
        pa.bool_(): BOOLEAN,
        pa.int8(): SqlType("tinyint"),
        pa.int16(): SqlType("smallint"),
        pa.int32(): INT,
        pa.int64(): BIGINT,
        pa.float32(): SqlType("float"),
        pa.float64(): DOUBLE,
        pa.string(): STRING,
        pa.large_string(): STRING,
        pa.binary(): BINARY,
        pa.large_binary(): BINARY,
        pa.date32(): DATE,
        pa.null(): VOID,
    }
    if arrow in simple:
        return simple[arrow]
    if pa.types.is_decimal(arrow):
        return decimal(arrow.precision, arrow.scale)
    if pa.types.is_timestamp(arrow):
        return TIMESTAMP if arrow.tz else TIMESTAMP_NTZ
    if pa.types.is_duration(arrow):
        return SqlType("interval day to second")
    if pa.types.is_time(arrow):
        return SqlType("time(6)")
    if pa.types.is_map(arrow):
        return SqlType("map", element=type_of_arrow(arrow.key_type), value=type_of_arrow(arrow.item_type))
    if pa.types.is_list(arrow) or pa.types.is_large_list(arrow):
        return SqlType("array", element=type_of_arrow(arrow.value_type))
    if pa.types.is_struct(arrow):
        fields = [arrow.field(i) for i in range(arrow.num_fields)]
        return SqlType("struct", fields=tuple(Field(f.name, type_of_arrow(f.type)) for f in fields))
    return SqlType(str(arrow))


def arrow_of(kind: SqlType) -> pa.DataType | None:
    """The Arrow type in which columns of a SQL type are stored; None for a type that has none here.

    >>> arrow_of(parse_type("array<timestamp>"))
    ListType(list<item: timestamp[us, tz=UTC]>)
    """
    if kind.stringlike:
        return pa.string()
    if kind.name == "decimal":
        return pa.decimal128(kind.precision or 10, kind.scale or 0)
    if kind.nested:
        inside = (kind.element, kind.value, *(one.type for one in kind.fields))
        parts = [arrow_of(one) for one in inside if one is not None]
        if any(part is None for part in parts):
            return None
        if kind.name == "array":
            return pa.list_(parts[0])
        if kind.name == "map":
            return pa.map_(*parts)
        return pa.struct([pa.field(one.name, part) for one, part in zip(kind.fields, parts, strict=True)])
    return _ARROW.get(kind)


_ARROW: Final = {
    BOOLEAN: pa.bool_(),
    SqlType("tinyint"): pa.int8(),
    SqlType("smallint"): pa.int16(),
    INT: pa.int32(),
    BIGINT: pa.int64(),
    FLOAT: pa.float32(),
    DOUBLE: pa.float64(),
    BINARY: pa.binary(),
    DATE: pa.date32(),
    TIMESTAMP: pa.timestamp("us", "UTC"),
    TIMESTAMP_NTZ: pa.timestamp("us"),
}


def canonical_arrow(arrow: pa.DataType) -> pa.DataType:
    """The Arrow type in which columns of this SQL type are stored: UTC microseconds, 32-bit offsets, nullable fields.

    >>> canonical_arrow(pa.list_(pa.timestamp("us", "Europe/Paris")))
    ListType(list<item: timestamp[us, tz=UTC]>)
    """
    if pa.types.is_timestamp(arrow):
        return pa.timestamp("us", "UTC" if arrow.tz else None)
    if pa.types.is_large_string(arrow):
        return pa.string()
    if pa.types.is_large_binary(arrow):
        return pa.binary()
    if pa.types.is_map(arrow):
        return pa.map_(canonical_arrow(arrow.key_type), canonical_arrow(arrow.item_type))
    if pa.types.is_list(arrow) or pa.types.is_large_list(arrow):
        return pa.list_(canonical_arrow(arrow.value_type))
    if pa.types.is_struct(arrow):
        fields = [arrow.field(place) for place in range(arrow.num_fields)]
        return pa.struct([pa.field(f.name, canonical_arrow(f.type)) for f in fields])
    return arrow
