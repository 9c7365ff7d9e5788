"""Choose the strategy of a join, with the reason: what `strategy="auto"` means, and what fits which predicate.

    kind of join        streams        batches
    equality            hypercube      Spark's own join (with three or more inputs, its joins in a chain)
    band, inequality    range          range if a state directory is set, else Spark's own join
    anything else       grid           Spark's own join; grid for a Python function
    many keys           delta          Spark's own joins in a chain

With `memory=` or `defer=` an equality join of streams takes budget, and all other joins refuse it.

`auto` takes the strategy that docs/benchmarks.md shows to be the fastest. Two inputs can be joined by delta too, but
their own schemes take 15 to 30% less CPU time. Each can be requested by name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from watersmeet.engine.options import AUTO, JoinOptions
from watersmeet.errors import UsageError
from watersmeet.model.signature import Order
from watersmeet.model.window import Window, over_time
from watersmeet.schemes.budget.policy import Pushing
from watersmeet.schemes.budget.scheme import Budget
from watersmeet.schemes.delta.scheme import Delta
from watersmeet.schemes.grid.policy import GridPolicy
from watersmeet.schemes.grid.scheme import Grid
from watersmeet.schemes.hypercube.scheme import Hypercube
from watersmeet.schemes.range.plan import Range
from watersmeet.schemes.register import SCHEMES
from watersmeet.schemes.scheme import Partners, Scheme, SchemeRequest
from watersmeet.schemes.table.facts import Reading
from watersmeet.schemes.table.plan import TableScheme

SPARK = "spark"
LOOKUPS = (AUTO, *Reading)


@dataclass(frozen=True, slots=True)
class Choice:
    """The strategy's name, and the reason in one sentence."""

    name: str
    why: str

    @property
    def walks(self) -> bool:
        return walks_by(self.name)


def walks_by(strategy: str) -> bool:
    """Whether a strategy joins one input after the other. Spark's own join is none of ours."""
    return strategy in SCHEMES and SCHEMES[strategy].walks


def strategies() -> tuple[str, ...]:
    """The values of `strategy=` for a join of streams or batches."""
    joining = (name for name, scheme in SCHEMES.items() if scheme.orders and Order.PAGE not in scheme.orders)
    return (AUTO, *joining, SPARK)


def choose(
    requested: str,
    order: str,
    *,
    inputs: int = 2,
    walks: bool = False,
    calls: bool,
    streaming: bool,
    has_place: bool,
    budget: str | None = None,
    waits: bool = False,
    window: Window | None = None,
) -> Choice:
    """Choose the strategy of a join whose runs have this order. Raise UsageError if the requested one does not fit.

    `walks` says that no key joins all inputs. `calls` says that the condition is a Python function, which Spark's own
    join cannot call. `budget` is the argument that gives a budget, if one does. `waits` says that `pay_within=` is
    given.
    """
    if requested not in strategies():
        raise UsageError(f"unknown strategy={requested!r}: use one of {', '.join(strategies())}")
    if budget or waits or (requested in SCHEMES and SCHEMES[requested].pushes):
        _check_budget(budget or ("pay_within=" if waits else "memory="), order, walks, streaming, window)
    if budget and requested == AUTO:
        return Choice(Budget.name, _BUDGETS[budget])
    if walks and requested == AUTO and not streaming:
        return Choice(SPARK, "a batch keeps no state, and Spark joins one input after the other")
    if walks and requested == AUTO:
        return Choice(
            Delta.name,
            "no key joins all inputs: new rows are looked up in one input after the other, by its keys",
        )
    if requested == AUTO:
        return _automatic(order, calls, streaming, has_place)
    if requested == SPARK:
        if streaming:
            raise UsageError('strategy="spark" is for batch inputs: leave it out for streams')
        if calls:
            raise UsageError('strategy="spark" cannot call a Python function as a condition: use "grid"')
    elif requested not in (fitting := _fitting(order, inputs, walks)):
        scheme = SCHEMES[requested]
        needs = scheme.needs
        if inputs > scheme.most_inputs:
            needs = f"two inputs, and this join has {inputs}"
        elif walks:
            needs = "a key that joins all inputs"
        use = " or ".join(f'"{name}"' for name in fitting)
        raise UsageError(f'strategy="{requested}" needs {needs}: use {use}')
    return Choice(requested, "you asked for it")


_BUDGETS = {
    "memory=": "memory= is given: a task touches no more of the history in a batch, and owes the rest",
    "defer=": "defer= is given: a task that takes too long sets history aside, and owes the rest",
}


def _check_budget(given: str, order: str, walks: bool, streaming: bool, window: Window | None) -> None:
    """Refuse a budget where rows cannot be set aside by their key. `given` is the argument that asks for one."""
    if not streaming:
        raise UsageError(f"{given} is for streams: a join of batches keeps no state. Leave it out")
    if walks:
        raise UsageError(
            f"{given} needs one key that joins all inputs: rows that are set aside by one key would be missed by the "
            "others. Leave it out"
        )
    if order != Order.HASH:
        raise UsageError(
            f"{given} needs an equality between the inputs: rows are set aside by their key, and here rows of different "
            "keys match. Leave it out"
        )
    if window is not None and not over_time(window):
        raise UsageError(
            f"{given} does not go with a window over rows: a row that is joined later would meet other rows. Use a window "
            f"over time, or leave {given} out"
        )


def _fitting(order: str, inputs: int, walks: bool) -> list[str]:
    """The schemes that can share out a join."""
    return [
        name
        for name, scheme in SCHEMES.items()
        if scheme.walks == walks and order in scheme.orders and inputs <= scheme.most_inputs
    ]


def _automatic(order: str, calls: bool, streaming: bool, has_place: bool) -> Choice:
    if order == Order.HASH:
        if streaming:
            return Choice(
                Hypercube.name,
                "the predicate has an equality: tasks divide the keys, and the pairs of a key with many rows",
            )
        return Choice(SPARK, "a batch keeps no state, and Spark's own equality join is the fastest")
    if order == Order.VALUE:
        if streaming or has_place:
            return Choice(
                Range.name,
                "the predicate bounds the distance or order of two values: runs are sorted by them",
            )
        return Choice(SPARK, "a batch without state= uses Spark's own join, which compares all pairs")
    if streaming or calls:
        return Choice(
            Grid.name, "the predicate has no part that can be looked up: all pairs, on an adaptive grid"
        )
    return Choice(SPARK, "all pairs must be compared, and for a batch Spark's own join does that")


def scheme_for(
    choice: Choice,
    options: JoinOptions,
    partners: Partners,
    *,
    tasks: int,
    adapting: GridPolicy,
    memory: int | None = None,
    pushing: Pushing | None = None,
) -> Scheme[Any]:
    """Make the scheme that the operator runs."""
    check_arguments(choice, options)
    return SCHEMES[choice.name].make(
        SchemeRequest(
            tasks=tasks,
            cells=options.cells,
            mapping=options.mapping,
            groups=options.groups,
            adapting=adapting,
            partners=partners,
            memory=memory,
            pushing=pushing,
        )
    )


def check_arguments(choice: Choice, options: JoinOptions) -> None:
    """Refuse arguments that belong to another strategy than the chosen one."""
    for scheme in SCHEMES.values():
        given = any(getattr(options, name) is not None for name in scheme.arguments)
        if given and scheme.name != choice.name:
            names = " and ".join(f"{name}=" for name in scheme.arguments)
            belong = "belongs" if len(scheme.arguments) == 1 else "belong"
            raise UsageError(
                f'{names} {belong} to strategy="{scheme.name}"; this join takes "{choice.name}": {choice.why}'
            )


def choose_lookup(requested: str) -> Choice:
    """Choose how a table is read. Raise UsageError if the requested strategy is not for tables."""
    if requested not in LOOKUPS:
        raise UsageError(f"strategy={requested!r} is not for a table: use one of {', '.join(LOOKUPS)}")
    reading = Reading.HYBRID if requested == AUTO else Reading(requested)
    return Choice(reading, _LOOKUPS[reading])


_LOOKUPS = {
    Reading.HYBRID: "a table is found by its key: a batch reads the pages that hold its keys, each once",
    Reading.MESH: "you asked for it: a batch reads all pages of the table",
    Reading.INDEX: "you asked for it: every key is looked up by itself",
}


def table_scheme(options: JoinOptions, *, tasks: int, memory: int, streaming: bool) -> TableScheme:
    """Make the scheme of a join with a table. A batch join has no later batch for waiting rows, so its delay is 0."""
    return TableScheme(options.max_delay_ms if streaming else 0, memory * tasks)
