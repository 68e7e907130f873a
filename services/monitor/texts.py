"""Text of token ids for people: through the run's own tokenizer, or an honest note when it cannot be had."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from services.agent.tokenizer import Tokenizer
    from services.runtime.store import ObjectStore


@dataclass(frozen=True)
class Texts:
    """`show` turns ids into text with control tokens spelt out; None without a tokenizer, and `note` says why."""

    show: Callable[[Sequence[int]], str] | None
    note: str | None = None

    def decode(self, ids: Any) -> str | None:
        """The text of `ids` (n,); None without a tokenizer, and for ids that no tokenizer has (negative ones)."""
        try:
            return None if self.show is None else self.show(ids)
        except (OverflowError, ValueError, TypeError):
            return None


def find_texts(store: ObjectStore | None, base_manifest: str, digest: str | None) -> Texts:
    """The tokenizer of the version-0 checkpoint named by `base_manifest`. Never raises: a look at a trial goes on.

    `digest` is what the trial's invocations say of their tokenizer; another one is used with a warning.
    """
    if store is None or not base_manifest:
        return Texts(None, "no tokenizer at hand (no run folder): token ids are shown")
    try:
        tokenizer = _tokenizer(store, base_manifest)
    except Exception as e:  # whatever is wrong with a stored file, ids can still be shown
        return Texts(None, f"the run's tokenizer cannot be used ({type(e).__name__}: {e}): token ids are shown")
    other = digest is not None and tokenizer.digest != digest
    return Texts(
        tokenizer.show, "the trial was sampled with another tokenizer; its text may be wrong" if other else None
    )


def _tokenizer(store: ObjectStore, base_manifest: str) -> Tokenizer:
    from services.agent.harness import TOKENIZER_FILE
    from services.agent.tokenizer import Tokenizer
    from services.runtime.checkpoints import fetch_checkpoint, load_manifest
    from services.runtime.scratch import Scratch

    manifest = load_manifest(store, base_manifest)
    with Scratch("tokenizer") as folder:
        fetch_checkpoint(store, manifest, folder, [TOKENIZER_FILE])
        return Tokenizer.load(folder / TOKENIZER_FILE)
