"""Where a table is: a path, a URI, or `env:NAME` for a URI in an environment variable.

`env:NAME` is looked up where the table is opened, on the driver and in each task, so the credential is neither in
the query that Spark ships nor in the state. What is shown, in messages and in reprs, never holds a credential:
it is blanked out (`watersmeet/credentials.py`), also in what a driver says.

Not guaranteed: that a URI with a password stays out of the query that Spark ships to its executors.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from watersmeet.credentials import hide, scrub
from watersmeet.errors import TableError

_FROM_ENVIRONMENT = "env:"

# `s3://bucket/x`: two letters at least, so that a Windows drive is not taken for a scheme.
_SCHEME = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]+)://")


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
        return scrub(message, uri)
