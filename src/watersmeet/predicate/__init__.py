"""Spark SQL text to typed join conditions and columns: parsed, checked, split into keys, bands and a residual.

The text comes from users and is not trusted. What is allowed is a list (syntax in `grammar.py`, functions in
`functions.py`); everything else is refused with its position in the text. Spark evaluates the user's own text and our
reading of it decides the keys. Both must agree, so doubt is refused.
"""

from watersmeet.predicate.parse import check_reads_every_input, parse_predicate, parse_select
from watersmeet.predicate.properties import is_fixed_zone, key_reads_zone, normal_zone, reads_zone
from watersmeet.predicate.type_rules import common_type
from watersmeet.predicate.window import parse_window

__all__ = [
    "check_reads_every_input",
    "common_type",
    "is_fixed_zone",
    "key_reads_zone",
    "normal_zone",
    "parse_predicate",
    "parse_select",
    "parse_window",
    "reads_zone",
]
