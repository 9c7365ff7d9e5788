"""Where a table is: a path, a URI, or `env:NAME` for a URI in an environment variable.

`env:NAME` is looked up where the table is opened, on the driver and in each task, so the credential is neither in
the query that Spark ships nor in the state. What is shown, in messages and in reprs, never holds a credential:
user and password of a URI and parameters that look secret are blanked out, also in what a driver says.

Not guaranteed: that a URI with a password stays out of the query that Spark ships to its executors.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from urllib.parse import unquote

from watersmeet.errors import TableError

HIDDEN = "***"

_FROM_ENVIRONMENT = "env:"

# `s3://bucket/x`: two letters at least, so that a Windows drive is not taken for a scheme.
_SCHEME = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]+)://")
# The user part of a URI. Up to the last `@` before the path, as a password may hold one.
_USER_INFO = re.compile(r"(?<=://)[^/?#\s]*(?=@)")
# `?password=..&sslpassword=..&secret_key=..`, and `password=..` in the other form that libpq takes.
_SECRET_VALUE = re.compile(
    r"(?i)((?:[a-z_.-]*(?:passw|secret|token|credential)[a-z_.-]*|(?:access|api|account)[_.-]?key)\s*=\s*)"
    r"('(?:[^'\\]|\\.)*'|[^&\s;]*)"
)


@dataclass(frozen=True, slots=True, repr=False)
class Address:
    """`text` is what the user wrote.

    >>> Address("postgresql://ada:s3cret@db/shop")
    postgresql://***@db/shop
    """

    text: str

    @property
    def variable(self) -> str | None:
        """The environment variable that holds the URI, if one does."""
        return self.text.removeprefix(_FROM_ENVIRONMENT) if self.text.startswith(_FROM_ENVIRONMENT) else None

    @property
    def uri(self) -> str:
        """The path or URI itself. It may hold a credential: not for messages."""
        name = self.variable
        if name is None:
            return self.text
        found = os.environ.get(name)
        if not found:
            raise TableError(
                f"{self.text}: the environment variable {name} is not set. Set it to the table's URI, on the driver "
                f"and on every executor (spark.executorEnv.{name})"
            )
        return found

    @property
    def scheme(self) -> str:
        """In lower case; empty for a path."""
        found = _SCHEME.match(self.uri)
        return found[1].lower() if found else ""

    def __repr__(self) -> str:
        return hide(self.text)

    def scrub(self, message: str) -> str:
        """A text that somebody else wrote, without the credentials of this URI."""
        uri = os.environ.get(self.variable, "") if self.variable else self.text
        for secret in sorted(_secrets(uri), key=len, reverse=True):
            message = message.replace(secret, HIDDEN)
        return hide(message)


def hide(text: str) -> str:
    """A text without the credentials of the URIs in it."""
    return _SECRET_VALUE.sub(rf"\1{HIDDEN}", _USER_INFO.sub(HIDDEN, text))


def _secrets(uri: str) -> set[str]:
    """Passwords and the like, as written and as they are meant. A user's name alone is none."""
    found = {match[2].strip("'") for match in _SECRET_VALUE.finditer(uri)}
    user_info = _USER_INFO.search(uri)
    if user_info:
        found.add(user_info[0].partition(":")[2])
    found |= {unquote(secret) for secret in found}
    return {secret for secret in found if secret}
