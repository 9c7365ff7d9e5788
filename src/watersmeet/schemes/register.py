"""All schemes by name. A new scheme is a new file here and a line in `SCHEMES`."""

from __future__ import annotations

from watersmeet.model.facts import RunStats, SchemePlan
from watersmeet.schemes.biclique import Biclique
from watersmeet.schemes.budget.scheme import Budget
from watersmeet.schemes.delta.scheme import Delta
from watersmeet.schemes.grid.scheme import Grid
from watersmeet.schemes.hash import Hash
from watersmeet.schemes.hub import HubScheme
from watersmeet.schemes.hypercube.scheme import Hypercube
from watersmeet.schemes.range.plan import Range
from watersmeet.schemes.scheme import Scheme
from watersmeet.schemes.table.plan import TableScheme

SCHEMES: dict[str, type[Scheme]] = {
    scheme.name: scheme
    for scheme in (Hash, Hypercube, Biclique, Range, Grid, Delta, Budget, TableScheme, HubScheme)
}


def plan_types() -> dict[str, type[SchemePlan]]:
    """The plan classes, by the `kind` that names them in JSON."""
    return {scheme.plan_type.kind: scheme.plan_type for scheme in SCHEMES.values()}


def stats_types() -> dict[str, type[RunStats]]:
    return {found.kind: found for scheme in SCHEMES.values() if (found := scheme.stats_type)}
