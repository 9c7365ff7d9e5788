"""Read a schema as users give it: DDL text, a StructType or an Arrow schema, into canonical types (`model/types.py`).

Pure, and without pyspark: the driver, the command line and job files read schemas with it. `NOT NULL` and comments are
accepted and ignored, as Spark's readers of files do. Types that cannot be read from files are refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

import pyarrow as pa

from watersmeet.errors import UsageError
from watersmeet.file_inputs.spark_types import spark_schema
from watersmeet.model.types import MAX_DECIMAL_DIGITS

_PLAIN: Final = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "byte": pa.int8(),
    "smallint": pa.int16(),
    "short": pa.int16(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "long": pa.int64(),
    "float": pa.float32(),
    "real": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ltz": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
_DECIMALS: Final = ("decimal", "dec", "numeric")
# Days to seconds; months and years are of no fixed length, and Spark does not hand them to Python.
_INTERVAL_UNITS: Final = ("day", "hour", "minute", "second")
_KNOWN: Final = (
    "BOOLEAN, TINYINT, SMALLINT, INT, BIGINT, FLOAT, DOUBLE, DECIMAL(p, s), STRING, BINARY, DATE, "
    "TIMESTAMP, TIMESTAMP_NTZ, INTERVAL DAY TO SECOND, ARRAY<..>, MAP<.., ..> or STRUCT<..>"
)

# Where Spark keeps the collations of a column's texts.
_COLLATIONS: Final = "__COLLATIONS"

_TOKEN: Final = re.compile(
    r"""\s*(?:(?P<name>`(?:[^`]|``)+`)|(?P<word>\w+)|(?P<text>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")|(?P<sign>\S))"""
)


def parse_schema(given: object) -> pa.Schema:
    """The columns that a user gave as DDL text, a StructType or a `pyarrow.Schema`, in canonical types.

    >>> parse_schema(pa.schema({"id": pa.uint8()})) == parse_schema("id SMALLINT")
    True
    """
    if isinstance(given, str):
        found = schema_of_ddl(given)
    elif isinstance(given, pa.Schema):
        found = spark_schema(given, "schema=")
    elif hasattr(given, "jsonValue") and hasattr(given, "fields"):
        found = schema_of_struct(given.jsonValue(), "schema=")
    else:
        raise UsageError(
            f'schema must be a text such as "id BIGINT, at TIMESTAMP", a StructType or a pyarrow.Schema, not '
            f"{type(given).__name__}"
        )
    if not len(found):
        raise UsageError("schema has no columns")
    lower = [name.lower() for name in found.names]
    twice = sorted({name for name in found.names if lower.count(name.lower()) > 1})
    if twice:
        raise UsageError(f"schema has several columns named {', '.join(twice)}: rename them")
    return found


def schema_of_ddl(text: str) -> pa.Schema:
    """The columns of a DDL text, in canonical Arrow types.

    >>> schema_of_ddl("id BIGINT NOT NULL, at TIMESTAMP, tags ARRAY<STRING>").names
    ['id', 'at', 'tags']
    """
    words = _Words(text)
    if words.next_are("struct", "<"):
        kind = words.type()
        words.expect_end()
        return pa.schema(list(kind))
    fields = words.fields("")
    words.expect_end()
    return pa.schema(fields)


def schema_of_struct(given: Mapping[str, Any], what: str) -> pa.Schema:
    """The columns of a StructType in its JSON form (`StructType.jsonValue()`). `what` names it in messages."""
    return pa.schema([_json_field(field, field["name"], what) for field in given["fields"]])


def _json_field(field: Mapping[str, Any], path: str, what: str) -> pa.Field:
    if field.get("metadata", {}).get(_COLLATIONS):
        raise UsageError(
            f"{what}: column {path} has a collation, which is not applied here: leave the column out"
        )
    return pa.field(field["name"], _json_type(field["type"], path, what))


def _json_type(given: str | Mapping[str, Any], path: str, what: str) -> pa.DataType:
    kind = given if isinstance(given, str) else given["type"]
    if isinstance(given, str):
        words = _Words(given)
        with suppress(UsageError):
            found = words.type()
            words.expect_end()
            return found
    elif kind == "array":
        return pa.list_(_json_type(given["elementType"], path, what))
    elif kind == "map":
        return pa.map_(_json_type(given["keyType"], path, what), _json_type(given["valueType"], path, what))
    elif kind == "struct":
        fields = [_json_field(field, f"{path}.{field['name']}", what) for field in given["fields"]]
        return pa.struct(fields)
    elif kind == "udt":
        return _json_type(given["sqlType"], path, what)
    raise UsageError(
        f"{what}: column {path} is of type {kind}, which cannot be read from files: leave it out"
    )


class _Words:
    """The words of a text, read from left to right."""

    def __init__(self, text: str):
        self._text = text
        self._found = [match for match in _TOKEN.finditer(text) if match.group().strip()]
        self._at = 0

    def next_are(self, *expected: str) -> bool:
        ahead = self._found[self._at : self._at + len(expected)]
        return [_lower(match) for match in ahead] == list(expected)

    def skip(self, *expected: str) -> bool:
        """Step over these words if they come next."""
        found = self.next_are(*expected)
        self._at += len(expected) if found else 0
        return found

    def expect(self, sign: str) -> None:
        if not self.skip(sign):
            raise self.refused(f"{sign!r} expected")

    def expect_end(self) -> None:
        if self._at < len(self._found):
            raise self.refused("a comma or the end expected")

    def refused(self, problem: str) -> UsageError:
        ahead = self._found[self._at :]
        where = f"at {self._text[ahead[0].start() :].strip()[:40]!r}" if ahead else "at the end"
        return UsageError(
            f'schema={self._text!r}: {problem} {where}. Write columns as "id BIGINT, at TIMESTAMP", '
            f"with the types {_KNOWN}"
        )

    def fields(self, end: str) -> list[pa.Field]:
        """Columns up to the sign `end`, which is left."""
        if end and self.next_are(end):
            return []
        found = [self.field()]
        while self.skip(","):
            found.append(self.field())
        return found

    def field(self) -> pa.Field:
        name = self.name()
        self.skip(":")
        kind = self.type()
        self.skip("not", "null")
        if self.skip("comment"):
            if not self._is("text"):
                raise self.refused("a comment in quotes expected")
            self._at += 1
        return pa.field(name, kind)

    def name(self) -> str:
        if not (self._is("name") or self._is("word")):
            raise self.refused("the name of a column expected")
        match = self._found[self._at]
        self._at += 1
        return match["word"] or match["name"][1:-1].replace("``", "`")

    def type(self) -> pa.DataType:
        if not self._is("word"):
            raise self.refused("a type expected")
        word = _lower(self._found[self._at])
        if word not in _PLAIN and word not in (*_DECIMALS, "interval", "array", "map", "struct"):
            raise self.refused("a type that can be read from files expected")
        self._at += 1
        match word:
            case "array":
                self.expect("<")
                element = self.type()
                self.expect(">")
                return pa.list_(element)
            case "map":
                self.expect("<")
                key = self.type()
                self.expect(",")
                value = self.type()
                self.expect(">")
                return pa.map_(key, value)
            case "struct":
                self.expect("<")
                fields = self.fields(">")
                self.expect(">")
                return pa.struct(fields)
            case "interval":
                return self._interval()
        return self._decimal() if word in _DECIMALS else _PLAIN[word]

    def _decimal(self) -> pa.DataType:
        digits = self._digits()
        # Spark's default is (10, 0).
        precision, scale = {0: (10, 0), 1: (*digits, 0), 2: tuple(digits)}.get(len(digits), (0, 0))
        if not 0 <= scale <= precision <= MAX_DECIMAL_DIGITS or not precision:
            raise self.refused(f"DECIMAL(p, s) needs 0 <= s <= p <= {MAX_DECIMAL_DIGITS},")
        return pa.decimal128(precision, scale)

    def _digits(self) -> list[int]:
        """The numbers in brackets, if there are brackets."""
        if not self.skip("("):
            return []
        found = []
        while not self.skip(")"):
            if not self._is("word") or not self._found[self._at]["word"].isdecimal():
                raise self.refused("a number expected")
            found.append(int(self._found[self._at]["word"]))
            self._at += 1
            self.skip(",")
        return found

    def _interval(self) -> pa.DataType:
        self._interval_unit()
        if self.skip("to"):
            self._interval_unit()
        return pa.duration("us")

    def _interval_unit(self) -> None:
        if not any(self.skip(unit) for unit in _INTERVAL_UNITS):
            raise self.refused("INTERVAL of days to seconds expected")

    def _is(self, kind: str) -> bool:
        return self._at < len(self._found) and self._found[self._at][kind] is not None


def _lower(match: re.Match[str]) -> str:
    return match[match.lastgroup or 0].lower()
