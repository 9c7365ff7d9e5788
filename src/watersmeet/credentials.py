"""Blank out credentials in URIs wherever a place is shown.

State and tables may be at a URI that holds a credential (`s3://KEY:SECRET@bucket/x`, `?access_key=...`). Messages,
reprs, `wm.status`, the command line and texts of other libraries show the URI through `hide` or `scrub`.

Both prefer to hide too much: anything that looks like a credential is blanked out, even in a path.
"""

from __future__ import annotations

import re
from urllib.parse import unquote

HIDDEN = "***"

# The user part of a URI that names files or a page. Up to the last `@` before the path, as a password may hold one.
_FILES = r"(?:file|sqlite|s3[an]?|gs|gcs|hdfs|abfss?|https?)"
# Azure's `abfss://container@account/x` has no user part unless there is a colon.
_CONTAINER = r"abfss?://[^:/?#@\s]*@"
_USER_INFO = re.compile(rf"(?i)(\b(?!{_CONTAINER}){_FILES}://)([^/?#\s]*)(?=@)")
# Any other URI is assumed to name a database, whose driver accepts `#`, `?` and spaces in a password, or refuses the
# URI in a message. Everything up to the last `@` before the path is hidden, or up to the last `@` if there is none. If
# hosts, a path and a parameter come first, the `@` is in a parameter, and nothing is hidden.
_HOST = r"(?:\[[0-9a-f:.%]*\]|[\w.-]*)(?::\d*)?"
_HOSTS_FIRST = rf"{_HOST}(?:,{_HOST})*/[^?@]*\?[\w.-]+="
_DATABASE_USER_INFO = re.compile(
    rf"(?is)(\b(?!{_FILES}://)[a-z][a-z0-9+.-]+://)(?!{_HOSTS_FIRST})([^/]*|.*)(?=@)"
)
# A password or secret key may hold slashes, even after an `@`. The driver refuses such a URI in a message. Everything
# up to the last `@` of the word is hidden. For files only if a colon shows that there is a key: buckets have none.
_ODD_USER_INFO = re.compile(
    rf"(?i)(\b(?!{_FILES}://)[a-z][a-z0-9+.-]+://|\b(?:s3[an]?|gs|gcs)://(?=[^/?#@\s]*:))([^?\s\"']*)(?=@)"
)
# `sig` and `sas` are Azure's names.
_SECRET_WORDS = r"[a-z_.-]*(?:passw|secret|token|credential|signature)[a-z_.-]*"
_SECRET = rf"(?:{_SECRET_WORDS}|(?:access|api|account)[_.-]?key|sig|sas)\s*=\s*"
# `?password=..&sslpassword=..&secret_key=..`: everything up to `&`, unless it is already hidden and a message follows.
_SECRET_PARAMETER = re.compile(rf"(?i)((?<=[?&]){_SECRET})(\*\*\*(?=[\s\"'])|[^&]*)")
# `password=..` in libpq's other syntax.
_SECRET_WORD = re.compile(rf"(?i)((?<![?&a-z_.-]){_SECRET})('(?:[^'\\]|\\.)*'|(?:[^\s\\]|\\.)*)")
# `?endpoint_override=http%3A%2F%2Fuser%3Apassword%40host`: a URI inside a parameter, with an escaped `@`.
_ENCODED_USER_INFO = re.compile(r"(?i)(=[a-z][a-z0-9+.-]*%3A%2F%2F)([^&\s\"']*)(?=%40)")
_USERS = (_USER_INFO, _DATABASE_USER_INFO, _ODD_USER_INFO, _ENCODED_USER_INFO)
_PARAMETERS = (_SECRET_PARAMETER, _SECRET_WORD)


def hide(text: str) -> str:
    """The text without the credentials of the URIs in it."""
    shown: list[str] = []
    end = 0
    # All are found in the original text. Where two overlap, such as a password with an `@` in a parameter, blanking out
    # one would keep the other from matching the rest.
    for first, behind in sorted(
        match.span(2) for pattern in _USERS + _PARAMETERS for match in pattern.finditer(text)
    ):
        if not shown or first > end:
            shown.append(text[end:first])
        end = max(end, behind)
    return HIDDEN.join([*shown, text[end:]])


def scrub(message: str, uri: str) -> str:
    """A text of another library, without the credentials of this URI, wherever they are in it."""
    for secret in sorted(secrets_in(uri), key=len, reverse=True):
        message = message.replace(secret, HIDDEN)
    return hide(message)


def secrets_in(uri: str) -> set[str]:
    """Passwords and other secrets, as written and decoded. A user's name alone is not a secret."""
    found = {match[2].strip("'") for pattern in _PARAMETERS for match in pattern.finditer(uri)}
    found |= {match[2].partition(":")[2] for pattern in _USERS for match in pattern.finditer(uri)}
    found |= {unquote(secret) for secret in found}
    return {secret for secret in found if secret}
