"""What a worker answered, as an outcome that comparators take: the trusted side of the worker's wire."""

from __future__ import annotations

from collections.abc import Iterable

from services.tasks import comparators, values
from services.tasks.fixture import ObjectClass, Outcome
from services.tasks.objects import schema

UNENCODABLE = "u"
RAISED = "x"


def outcome_of(kind: str, text: str, comparator: str, objects: Iterable[ObjectClass] = ()) -> Outcome:
    """The outcome in an answer of `kind` (returned, raised, unencodable) under a declared comparator.

    `objects` are the declared classes of linked nodes.

    Raises values.Unencodable when the worker could not encode what the candidate returned, values.Undecodable when the
    answer is not of the form that was asked for.
    """
    if kind == UNENCODABLE:
        raise values.Unencodable("the worker could not encode it")
    value = values.loads(text, objects=schema(objects))
    args_after = None
    if comparators.wants_arguments(comparator):
        if type(value) is not tuple or len(value) != 2 or type(value[1]) is not tuple:
            raise values.Undecodable("an answer with its arguments is a pair")
        value, args_after = value
    if kind == RAISED:
        if not isinstance(value, values.ExceptionName):
            raise values.Undecodable("a raised exception is a name")
        return Outcome(error=value.name, args_after=args_after)
    return Outcome(value=value, args_after=args_after)
