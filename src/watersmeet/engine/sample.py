"""Sample walks through the runs of a batch that is being planned."""

from __future__ import annotations

from collections.abc import Sequence

from watersmeet.engine.spec import JoinSpec
from watersmeet.kernel.fan_outs import sample_fan_outs
from watersmeet.kernel.rows import Keyed
from watersmeet.kernel.walk import WalkJoin
from watersmeet.log.runs import RunReader
from watersmeet.model.facts import FULL_RANGE, Run
from watersmeet.model.signature import Order
from watersmeet.model.walks import FanOut
from watersmeet.schemes.scheme import FanOutsOf


def fan_outs_in(reader: RunReader, spec: JoinSpec) -> FanOutsOf | None:
    """How a scheme gets the fan-outs of a join that walks; None if it does not."""
    if not spec.scheme.walks:
        return None
    join, signature = spec.kernel, spec.signature
    assert isinstance(join, WalkJoin), "a scheme that walks has this kernel"

    def fan_outs_of(start: str, fresh: Sequence[Run], history: Sequence[Run]) -> Sequence[FanOut]:
        def slices(name: str, runs: Sequence[Run]) -> list[Keyed]:
            sort = signature.order(name) != Order.ARRIVAL
            columns = signature.columns(name)
            return [
                piece
                for run in runs
                if run.input == name
                for piece in reader.slices(run, FULL_RANGE, columns, sort=sort)
            ]

        own = next(stored for name, stored in join.arrangements if name == start)
        others = [one for name, stored in join.arrangements if name != start for one in stored]
        everything = (*history, *fresh)
        read_of = {own[0]: fresh, **dict.fromkeys(others, everything)}
        reader.expect(lambda: [run for name, runs in read_of.items() for run in runs if run.input == name])
        stored = {name: slices(name, everything) for name in others}
        return sample_fan_outs(join, start, slices(own[0], fresh), stored, spec.settings.limits)

    return fan_outs_of
