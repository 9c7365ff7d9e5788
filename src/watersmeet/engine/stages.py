"""The facts of a chain: the stages of a join, and how they speak of its columns. `engine/chain.py` plans them."""

from __future__ import annotations

from dataclasses import dataclass, field

from watersmeet.engine.options import JoinOptions
from watersmeet.errors import PredicateError
from watersmeet.model.expression import Column
from watersmeet.model.types import Schema
from watersmeet.predicate.write import quoted

# Between the names of an input and of its column, in the columns that a stage returns.
_OF = ":"


def flat_name(column: Column) -> str:
    """The name by which a column of the user passes a stage."""
    return f"{column.input}{_OF}{column.name}"


@dataclass(frozen=True, slots=True)
class Stage:
    """One operator of a chain. `name` is its folder in the state, `table` the table that it looks up, if any.

    `earlier` has those of its inputs that are the results of an earlier stage, by its number. The others are inputs of
    the user, by their names.
    """

    name: str
    options: JoinOptions
    schemas: dict[str, Schema]
    table: str | None = None
    earlier: dict[str, int] = field(default_factory=dict)
    user_on: str = ""

    def translated(self, text: str) -> str:
        """A text over the columns of this stage, over those of the user."""
        for name in self.earlier:
            for column in self.schemas[name]:
                written = column.replace(_OF, ".", 1)
                text = text.replace(f"{quoted(name)}.{quoted(column)}", written)
                text = text.replace(f"{name}.{column}", written)
        return text

    def in_users_words(self, error: PredicateError) -> PredicateError:
        """A refusal of this stage in terms of the text and the columns that the user wrote."""
        if not self.user_on:
            return error
        text = self.user_on if error.text == self.options.on else error.text and self.translated(error.text)
        return PredicateError(self.translated(error.problem), text, hint=self.translated(error.hint))


@dataclass(frozen=True, slots=True)
class Chain:
    """The stages of a join, in the order in which they run; the last one gives the results.

    `structs` says how its flat columns become one struct for each input: by input and field the column. None if the
    last stage returns what the user asked for.
    """

    stages: tuple[Stage, ...]
    structs: dict[str, dict[str, str]] | None = None

    @property
    def main(self) -> int:
        """The stage that stands for the whole join: the join of the streams, or the last lookup."""
        streams = [number for number, stage in enumerate(self.stages) if stage.table is None]
        return streams[-1] if streams else len(self.stages) - 1


def explain_chain(chain: Chain) -> str:
    """The lookups of a chain in words; empty for a chain of one stage."""
    if len(chain.stages) == 1:
        return ""
    first = [f"{stage.table} for rows of {_stream_of(stage)}" for stage in chain.stages[: chain.main]]
    last = [str(stage.table) for stage in chain.stages[chain.main + 1 :]]
    if chain.stages[chain.main].table is not None:
        first.append(str(chain.stages[chain.main].table))
    words = [f"looked up first: {', then '.join(first)}"] if first else []
    return "; ".join([*words, *([f"looked up in the results: {', then '.join(last)}"] if last else [])])


def _stream_of(stage: Stage) -> str:
    return next(name for name in stage.schemas if name != stage.table)
