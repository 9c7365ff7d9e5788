"""Credentials in URIs: blanked out wherever a place is shown.

State and tables may be at a URI that holds a credential (`s3://KEY:SECRET@bucket/x`, `?access_key=...`). Messages,
reprs, `wm.status`, the command line and texts of other libraries show the URI through `hide` or `scrub`.

Both prefer to hide too much: what looks like a credential is blanked out, also in a path.
"""

from __future__ import annotations

import re
from urllib.parse import unquote

HIDDEN = "***"

# The user part of a URI that names files or a page. Up to the last `@` before the path, as a password may hold one.
_FILES = r"(?:file|sqlite|s3[an]?|gs|gcs|hdfs|abfss?|https?)"
# Azure's `abfss://container@account/x` has none unless there is a colon.
_CONTAINER = r"abfss?://[^:/?#@\s]*@"
_USER_INFO = re.compile(rf"(?i)(\b(?!{_CONTAINER}){_FILES}://)([^/?#\s]*)(?=@)")
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
# `?endpoint_override=http%3A%2F%2Fuser%3Apassword%40host`: a URI inside a parameter, with an escaped `@`.
_ENCODED_USER_INFO = re.compile(r"(?i)(=[a-z][a-z0-9+.-]*%3A%2F%2F)([^&\s\"']*)(?=%40)")
_USERS = (_USER_INFO, _DATABASE_USER_INFO, _ODD_USER_INFO, _ENCODED_USER_INFO)
_PARAMETERS = (_SECRET_PARAMETER, _SECRET_WORD)


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


def scrub(message: str, uri: str) -> str:
    """A text that somebody else wrote, without the credentials of this URI, wherever they stand in it."""
    for secret in sorted(secrets_in(uri), key=len, reverse=True):
        message = message.replace(secret, HIDDEN)
    return hide(message)


def secrets_in(uri: str) -> set[str]:
    """Passwords and the like, as written and as they are meant. A user's name alone is none."""
    found = {match[2].strip("'") for pattern in _PARAMETERS for match in pattern.finditer(uri)}
    found |= {match[2].partition(":")[2] for pattern in _USERS for match in pattern.finditer(uri)}
    found |= {unquote(secret) for secret in found}
    return {secret for secret in found if secret}
