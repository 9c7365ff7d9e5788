"""The plan of every batch of a life, checked by the scheme that made it."""

from __future__ import annotations

from watersmeet.engine import operator as engine
from watersmeet.local.join import LocalJoin


def check_plan(join: LocalJoin, number: int) -> None:
    """Raise if the plan of the batch that was just run misses a pair or joins it twice."""
    spec = join.operator.spec
    manifest = engine._kept(spec, join.query, join.clock).last
    assert manifest is not None and (manifest.batch.run, manifest.batch.number) == (join.run, number)
    spec.scheme.check(manifest.plan.scheme, spec.settings.tasks)
