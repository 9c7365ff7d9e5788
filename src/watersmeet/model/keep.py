"""Whether a hub keeps steps (hubs/keep_choice.py)."""

from __future__ import annotations

from watersmeet.model.closed import ClosedSet


class Keep(ClosedSet):
    """Where that is cheaper, nowhere, or of every template the best ones."""

    AUTO = "auto"
    NEVER = "never"
    ALWAYS = "always"
