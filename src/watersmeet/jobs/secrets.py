"""Credentials in options: taken from the environment as late as possible, and never shown.

Spark or a connector may still write a credential into its own log file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from watersmeet.credentials import HIDDEN, hide, secrets_in
from watersmeet.errors import ConfigError
from watersmeet.jobs.model import HubJob, Job

_VARIABLE = re.compile(r"(?<!\$)\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_ESCAPED = re.compile(r"\$(\$\{[A-Za-z_][A-Za-z0-9_]*\})")

# Words that appear in the keys of credentials: Kafka's sasl.jaas.config, S3A's access.key and secret.key,
# ABFS' account.key and sas.token, JDBC's password, truststores, ...
_SECRET_KEY = re.compile(
    r"secret|passw|pwd|passphrase|token|credential|jaas|auth|(access|api|private|account|shared|encryption)[._-]?key",
    re.IGNORECASE,
)

# Shorter values are words such as "true" or "1", which would be blanked out all over a message.
_MIN_SECRET_CHARS = 5


def variables(text: str) -> list[str]:
    """The environment variables that a text uses."""
    return _VARIABLE.findall(text)


def expand(text: str, env: Mapping[str, str], where: str) -> str:
    """Replace `${NAME}` with the environment's value; `$${NAME}` stands for the text `${NAME}`.

    >>> expand("user=${WHO} $${WHO}", {"WHO": "ada"}, "")
    'user=ada ${WHO}'
    """
    for name in variables(text):
        if name not in env:
            raise ConfigError(f"{where} needs the environment variable {name}, which is not set")
    return _ESCAPED.sub(r"\1", _VARIABLE.sub(lambda match: env[match[1]], text))


def expand_all(options: Mapping[str, str], env: Mapping[str, str], where: str) -> dict[str, str]:
    return {key: expand(value, env, f"{where}, key {key},") for key, value in options.items()}


def looks_secret(key: str) -> bool:
    return _SECRET_KEY.search(key) is not None


def shown(key: str, value: str) -> str:
    """An option's value for display. Variables stay unexpanded, so they can be shown."""
    if looks_secret(key) and not _VARIABLE.fullmatch(value):
        return HIDDEN
    return hide(value)


def secrets_of(job: Job | HubJob, env: Mapping[str, str]) -> frozenset[str]:
    """Texts that must not appear in a message: values under secret-looking keys, values of variables, and the
    credentials in the URIs of state and checkpoint.

    Tables hide theirs themselves (tables/spec.py).
    """
    found = secrets_in(job.state) | secrets_in(job.checkpoint)
    for options in (*(source.options for source in job.stream_inputs), job.sink_options, job.spark):
        for key, value in options.items():
            found.update(env[name] for name in variables(value) if name in env)
            if looks_secret(key):
                found.add(value)
    return frozenset(secret for secret in found if len(secret) >= _MIN_SECRET_CHARS)


def scrub(message: str, secrets: frozenset[str]) -> str:
    """Blank out credentials in a text of another library."""
    for secret in sorted(secrets, key=len, reverse=True):
        message = message.replace(secret, HIDDEN)
    return message
