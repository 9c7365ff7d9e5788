"""Spark SQL text to typed join conditions and columns: parsed, checked, split into keys, band and residual.

The text comes from users and is not trusted. What is allowed is a list (operators in `gate.py`, functions
in `functions.py`); everything else is refused with its place in the text. Spark evaluates the user's own
text; our reading of it decides the keys, so both must agree, and doubt is refused.
"""

from watersmeet.predicate.coerce import common_type
from watersmeet.predicate.condition import check_reads_both, is_fixed_zone, parse_predicate
from watersmeet.predicate.select import parse_select
from watersmeet.predicate.window import parse_window
from watersmeet.predicate.zone import key_reads_zone, normal_zone, reads_zone

__all__ = [
    "check_reads_both",
    "common_type",
    "is_fixed_zone",
    "key_reads_zone",
    "normal_zone",
    "parse_predicate",
    "parse_select",
    "parse_window",
    "reads_zone",
]
