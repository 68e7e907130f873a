"""Hidden pytest files run as programs of the verifier: those of a copy made elsewhere wait until somebody trusts them.

What is not trusted lies beside the place that the verifier reads, so that it cannot be run by any oversight.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from services.runtime.errors import UserError
from services.tasks import taskset

if TYPE_CHECKING:
    from services.runtime.store import ObjectStore

HIDDEN, HELD = "hidden.json", "hidden.untrusted.json"


def key(taskset_digest: str, name: str = HIDDEN) -> str:
    """Where a hidden half lies in its store."""
    return f"tasks/{taskset_digest}/{name}"


def is_hidden(object_key: str) -> bool:
    """Whether an object is a hidden half, trusted or not."""
    return object_key.startswith("tasks/") and object_key.rpartition("/")[2] in (HIDDEN, HELD)


def programs(document: bytes) -> int:
    """How many check sets of a hidden document bring tests that run as programs; 1 where it cannot be read."""
    try:
        return sum(check.hidden_tests is not None for check in taskset.load_hidden(document))
    except taskset.BadDocument:
        return 1


def trust(store: ObjectStore, taskset_digest: str) -> bool:
    """Put what was held back where the verifier reads it; False where there is nothing of the kind."""
    held = key(taskset_digest, HELD)
    if not store.exists(held):
        return False
    store.put_if_absent(key(taskset_digest), store.get(held))
    store.delete(held)
    return True


def require_trusted(store: ObjectStore, taskset_digest: str) -> None:
    """UserError when the hidden tests of this task set came with a copy that nobody has said to trust."""
    if store.exists(key(taskset_digest)) or not store.exists(key(taskset_digest, HELD)):
        return
    count = programs(store.get(key(taskset_digest, HELD)))
    raise UserError(
        f"the hidden tests of {count} tasks came with a backup made elsewhere: they are programs that the verifier "
        f"runs in a process of its own, outside of every sandbox",
        f"{key(taskset_digest, HELD)} in {store}",
        "read them; where you trust who made the backup: rollstream run --trust, or restore it again with --trust",
    )
