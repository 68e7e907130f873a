"""The trusted side of the worker's wire in the words of the task library: what is asked, and what an answer means."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from services.runtime.jail import program
from services.runtime.jail.session import Program
from services.tasks import comparators, objects, values
from services.tasks.fixture import ObjectClass, Outcome

UNENCODABLE = "u"
RAISED = "x"


def program_of(tree: Mapping[str, str], entry: str, comparator: str, classes: Sequence[ObjectClass]) -> Program:
    """What a jail is asked to run for calls of `entry`, compared by `comparator`. Raises program.NoEntry."""
    _, module, function = program.locate(tree, entry)
    return Program(
        tree,
        module,
        function,
        drain=comparators.drains(comparator),
        want_args=comparators.wants_arguments(comparator),
        exception_names=values.EXCEPTION_NAMES,
        objects=tuple((kind.name, kind.fields, kind.module) for kind in classes),
        pack=objects.packer(classes),
    )


def outcome_of(kind: str, text: str, comparator: str, classes: Iterable[ObjectClass] = ()) -> Outcome:
    """The outcome in an answer of `kind` (returned, raised, unencodable) under a declared comparator.

    `classes` are those of the linked nodes that it may hold. Raises values.Unencodable when the worker could not encode
    what the candidate returned, values.Undecodable when the answer is not of the form that was asked for.
    """
    if kind == UNENCODABLE:
        raise values.Unencodable("the worker could not encode it")
    value = values.loads(text, objects=objects.schema(classes))
    args_after = None
    if comparators.wants_arguments(comparator):
        if type(value) is not tuple or len(value) != 2 or type(value[1]) is not tuple:
            raise values.Undecodable("an answer with its arguments is a pair")
        value, args_after = value
    if kind == RAISED:
        if not isinstance(value, values.ExceptionName):
            raise values.Undecodable("a raised exception is a name")
        return Outcome.raised(value.names, args_after)
    return Outcome(value=value, args_after=args_after)
