"""Decide whether a join may continue the state that another definition wrote.

These changes are safe: the number of tasks (if rows are cut for cells or units, as long as the cut stays the same), the
spelling of the predicate, a `select` without new columns, the order of columns, the lateness, and the session time zone
if nothing stored depends on it. Everything else would mix rows of two meanings and is refused.
"""

from __future__ import annotations

from dataclasses import replace

from watersmeet.errors import StateMismatch
from watersmeet.model.found import explain_found
from watersmeet.model.signature import Compared, InputSpec, JoinSignature
from watersmeet.model.window import Window, width_text
from watersmeet.schemes.register import SCHEMES
from watersmeet.schemes.scheme import Scheme, Serves


def check_compatible(old: JoinSignature, new: JoinSignature) -> None:
    """Raise StateMismatch that names the first difference that matters."""
    # A scheme that this version does not know continues as any join.
    before, after = (SCHEMES.get(one.scheme, Scheme) for one in (old, new))
    if (before.serves == Serves.HUB) != (after.serves == Serves.HUB):
        other = "a hub" if before.serves == Serves.HUB else "a join"
        raise StateMismatch(f"the state was written by {other}: give this one another name=. {_ADVICE}")
    after.check_continues(old, new, _check_joins)


def _check_joins(old: JoinSignature, new: JoinSignature) -> None:
    _check_arrangements(old, new)
    old_names, new_names = [i.name for i in old.inputs], [i.name for i in new.inputs]
    if old_names != new_names:
        _refuse("its inputs were", old_names, new_names)
    if old.predicate != new.predicate:
        _refuse("its predicate was", old.predicate, new.predicate)
    if old.key_types != new.key_types or old.compared != new.compared:
        _refuse("its keys were compared as", _shown_keys(old), _shown_keys(new))
    if old.sides and old.sides != new.sides:
        _refuse("its rows are sorted by", old.sides, new.sides)
    if old.zone and old.zone != new.zone:
        _refuse_zone(old.zone, new.zone)
    if old.layout != new.layout:
        _refuse_layout(old, new)
    _check_window(old, new)
    for before, after in zip(old.inputs, new.inputs, strict=True):
        _check_columns(before, after)


def _check_arrangements(old: JoinSignature, new: JoinSignature) -> None:
    """Refuse a state whose rows are found in another way than this version finds them for the same join.

    Up to format 6, an input that only an inequality joins was stored in the order of arrival, and other keys could be
    chosen. The user did not change the join then, so there is nothing to change back. A key of another type may be
    computed instead of read, which looks the same.
    """
    same = old.predicate == new.predicate and old.compared == new.compared == Compared.WALK
    if same and _users_inputs(old) == _users_inputs(new) and _arrangements(old) != _arrangements(new):
        before, now = explain_found(old), explain_found(new)
        if before == now:
            before, now = _sorted_by(old), _sorted_by(new)
        raise StateMismatch(
            f"this state was written for the same predicate, but its inputs are stored in another way. There each "
            f"input is found as follows: {before}. Now: {now}. Likely another version of Watersmeet "
            "wrote it: continue with that version. Or the type of a key column has changed: change it back. Otherwise "
            "start with a new checkpoint to begin with fresh state"
        )


def _sorted_by(signature: JoinSignature) -> str:
    """What each arrangement is sorted by, where the columns that inputs are found by do not tell two states apart."""
    return "; ".join(
        f"{one.name} sorted by {', '.join((*one.keys, *one.suffix))}" for one in signature.inputs
    )


def _users_inputs(signature: JoinSignature) -> list[str]:
    return [one.name for one in signature.inputs if not one.of]


def _arrangements(signature: JoinSignature) -> list[tuple[object, ...]]:
    return [(one.name, one.order, one.keys, one.suffix) for one in signature.inputs]


def _refuse_zone(old: str, new: str) -> None:
    """Refuse another zone. An unknown one is refused too: once recorded, any zone would pass."""
    found, remedy = f"it is {new}", f"Set spark.sql.session.timeZone to {old} before the join is built"
    if not new:
        found = "it is unknown, because this platform does not reveal the setting"
        remedy = f'If it is still {old}, pass options={{"timeZone": "{old}"}}'
    raise StateMismatch(
        f"a key, or a condition on one input, depends on the session's time zone. The state was written under "
        f"{old}, now {found}. {remedy}, or start with a new checkpoint to begin with fresh state"
    )


def _check_window(old: JoinSignature, new: JoinSignature) -> None:
    """Refuse another window: a narrower one has dropped rows for good, so a wider one could not be exact."""
    if _without_lateness(old.window) != _without_lateness(new.window):
        _refuse("its window was", _shown_window(old.window), _shown_window(new.window))
    for before, after in zip(old.inputs, new.inputs, strict=True):
        if before.time != after.time:
            _refuse(f"the time of {after.name} was", before.time, after.time)


def _shown_keys(signature: JoinSignature) -> tuple[str, ...]:
    return *signature.key_types, str(signature.compared)


def _without_lateness(window: Window | None) -> Window | None:
    return None if window is None else replace(window, lateness=0)


def _shown_window(window: Window | None) -> str:
    if window is None:
        return "none"
    return f'within="{width_text(window)}"' + (f" over times of type {window.of}" if window.of else "")


def _refuse_layout(old: JoinSignature, new: JoinSignature) -> None:
    before, after = SCHEMES[old.scheme], SCHEMES[new.scheme]
    why = after.refuse_layout(old.layout, new.layout) if before is after else None
    if why is not None:
        raise StateMismatch(why)
    _refuse(
        "its rows were stored for", before.words_for_layout(old.layout), after.words_for_layout(new.layout)
    )


def _check_columns(before: InputSpec, after: InputSpec) -> None:
    if before.keys != after.keys:
        _refuse(f"the keys of {after.name} were, in this order,", list(before.keys), list(after.keys))
    if before.suffix != after.suffix:
        _refuse(
            f"the second keys of {after.name} were, in this order,", list(before.suffix), list(after.suffix)
        )
    had = {column.name: column.type for column in before.stored}
    for column in after.stored:
        if column.name not in had:
            raise StateMismatch(
                f"input {after.name}: column {column.name} is needed now, but the state does not hold it "
                f"for earlier rows (it holds {', '.join(had) or 'no column'}). {_ADVICE}"
            )
        if had[column.name] != column.type:
            raise StateMismatch(
                f"input {after.name}: column {column.name} is {column.type} now, but the state holds it as "
                f"{had[column.name]}. {_ADVICE}"
            )


_ADVICE = "Change it back, or start with a new checkpoint to begin with fresh state"


def _refuse(what: str, old: object, new: object) -> None:
    raise StateMismatch(f"the state was written by another join: {what} {old}, now {new}. {_ADVICE}")
