"""How the rows of each input are found, in words for people: for `wm.explain`, the status and messages."""

from __future__ import annotations

from watersmeet.model.signature import InputSpec, JoinSignature, Order

# The prefix of columns that are computed for a join: their names say nothing.
_OWN_PREFIX = "__wm_"


def found_by(signature: JoinSignature, name: str) -> tuple[str, ...]:
    """What the rows of an input are found by: one text for each arrangement that can be searched or read.

    >>> from watersmeet.model.facts import Compared
    >>> b = InputSpec("b", (), ("k", "j")), InputSpec("b.1", (), ("t",), order=Order.VALUE, of="b")
    >>> found_by(JoinSignature(b, "", (), Compared.WALK), "b")
    ('k and j', 'the value of t')
    """
    ways = (way_of(spec) for spec in signature.inputs if spec.input == name)
    return tuple(way for way in ways if way)


def way_of(spec: InputSpec) -> str:
    """What rows are found by in one arrangement. Empty if only the locators of another arrangement lead to them."""
    if spec.order == Order.ARRIVAL:
        return "reading all rows"
    columns = " and ".join("an expression" if one.startswith(_OWN_PREFIX) else one for one in spec.keys)
    return f"the value of {columns}" if spec.order == Order.VALUE else columns


def explain_found(signature: JoinSignature) -> str:
    """All inputs and what each is found by, such as `a by k; b by k, or by the value of t`."""
    names = [spec.name for spec in signature.inputs if not spec.of]
    return "; ".join(f"{name} by {', or by '.join(found_by(signature, name))}" for name in names)
