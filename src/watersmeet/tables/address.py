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
# The user part of a URI that names files or a page. Up to the last `@` before the path, as a password may hold one.
_FILES = r"(?:file|sqlite|s3[an]?|gs|gcs|hdfs|abfss?|https?)"
_USER_INFO = re.compile(rf"(?i)(\b{_FILES}://)([^/?#\s]*)(?=@)")
# Any other is taken for a database, whose driver accepts `#`, `?` and spaces in a password, or refuses the URI and
# says so: all up to the last `@` before the path is hidden, and if there is none, up to the last `@`. That is not
# done where hosts, a path and a parameter come first: there an `@` is in a parameter.
_HOST = r"(?:\[[0-9a-f:.%]*\]|[\w.-]*)(?::\d*)?"
_HOSTS_FIRST = rf"{_HOST}(?:,{_HOST})*/[^?@]*\?[\w.-]+="
_DATABASE_USER_INFO = re.compile(
    rf"(?is)(\b(?!{_FILES}://)[a-z][a-z0-9+.-]+://)(?!{_HOSTS_FIRST})([^/]*|.*)(?=@)"
)
# A password or secret key may hold slashes, also behind an `@`: the driver refuses such a URI and says so. All up to
# the last `@` of the word is hidden. Of files only where a colon says that there is a key: buckets have none.
_ODD_USER_INFO = re.compile(
    rf"(?i)(\b(?!{_FILES}://)[a-z][a-z0-9+.-]+://|\b(?:s3[an]?|gs|gcs)://(?=[^/?#@\s]*:))([^?\s\"']*)(?=@)"
)
# `sig` and `sas` are what Azure calls them.
_SECRET_WORDS = r"[a-z_.-]*(?:passw|secret|token|credential|signature)[a-z_.-]*"
_SECRET = rf"(?:{_SECRET_WORDS}|(?:access|api|account)[_.-]?key|sig|sas)\s*=\s*"
# `?password=..&sslpassword=..&secret_key=..`: all up to `&`, unless it is hidden already and a message goes on.
_SECRET_PARAMETER = re.compile(rf"(?i)((?<=[?&]){_SECRET})(\*\*\*(?=[\s\"'])|[^&]*)")
# `password=..` in the other form that libpq takes.
_SECRET_WORD = re.compile(rf"(?i)((?<![?&a-z_.-]){_SECRET})('(?:[^'\\]|\\.)*'|(?:[^\s\\]|\\.)*)")
_USERS = (_USER_INFO, _DATABASE_USER_INFO, _ODD_USER_INFO)
_PARAMETERS = (_SECRET_PARAMETER, _SECRET_WORD)


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
    shown: list[str] = []
    end = 0
    # All are found in the text as it was: where two overlap, such as a password with an `@` in a parameter, what one
    # has blanked out would keep the other from seeing the rest.
    for first, behind in sorted(
        match.span(2) for pattern in _USERS + _PARAMETERS for match in pattern.finditer(text)
    ):
        if not shown or first > end:
            shown.append(text[end:first])
        end = max(end, behind)
    return HIDDEN.join([*shown, text[end:]])


def _secrets(uri: str) -> set[str]:
    """Passwords and the like, as written and as they are meant. A user's name alone is none."""
    found = {match[2].strip("'") for pattern in _PARAMETERS for match in pattern.finditer(uri)}
    found |= {match[2].partition(":")[2] for pattern in _USERS for match in pattern.finditer(uri)}
    found |= {unquote(secret) for secret in found}
    return {secret for secret in found if secret}
