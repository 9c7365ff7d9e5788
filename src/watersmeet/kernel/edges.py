"""The edges that a join of many inputs walks along, and the arrangements that inputs are found in."""

from __future__ import annotations

from dataclasses import dataclass

from watersmeet.kernel.emit import PickedRows
from watersmeet.kernel.keys import words
from watersmeet.kernel.near import BandBounds, Intervals


@dataclass(frozen=True, slots=True)
class Edge:
    """Inputs that are equal in a key: the key's columns in each of them. Without columns nothing is said of them.

    With an `exact` order key equal order keys are equal keys; otherwise the columns are compared too. With a `band` it
    is two inputs, each with one column, whose values lie within bounds. An exact band decides its condition; of any
    other the condition is among the conjuncts.
    """

    columns: tuple[tuple[str, tuple[str, ...]], ...]
    exact: bool
    band: BandBounds | None = None

    @property
    def inputs(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.columns)

    def of(self, name: str) -> tuple[str, ...]:
        return next(columns for input_, columns in self.columns if input_ == name)

    def near(self, found: PickedRows, bound: str) -> Intervals:
        """Where the values of the other input may lie, for each combination."""
        assert self.band is not None
        (first, _), _ = self.columns
        of_bound = words(found[bound].values(*self.of(bound)))
        return self.band.of_other(of_bound) if bound == first else self.band.of_one(of_bound)


@dataclass(frozen=True, slots=True)
class Arranged:
    """An arrangement: its name, the input whose rows it has, and the edge it is sorted by, if it is found by one.

    If that is a band, it is sorted by value: `also` are further bands of the same value. `halves`: only half of its
    order keys is of that edge. The other half is of the edge `then`, or of several others. An arrangement that is
    located `through` another one holds no columns, but where its rows are in that one. For an edge without a key all
    rows are read, in any order: if the input has an arrangement already, they are those of `scanned`.
    """

    name: str
    input: str
    edge: int | None
    then: int | None = None
    halves: bool = False
    through: str | None = None
    scanned: str | None = None
    also: tuple[int, ...] = ()

    @property
    def stored(self) -> str:
        """The name among the stored inputs."""
        return self.scanned or self.name
