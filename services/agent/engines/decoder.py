"""What a batching engine needs of a model: rows that join, advance by one token and leave."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt
from torch import Tensor


class Decoder(Protocol):
    """Rows are numbered 0..n-1 in the order in which they joined, as changed by `keep`."""

    def join(self, prefixes: Sequence[npt.NDArray[np.int32]]) -> Tensor:
        """Add rows behind the present ones; logits (len(prefixes), vocabulary) of their next tokens."""

    def step(self, ids: Tensor) -> Tensor:
        """Append one token (n,) to every row; logits (n, vocabulary) of the next."""

    def keep(self, order: Sequence[int]) -> None:
        """Row i becomes the row that was numbered `order[i]`; rows not named leave."""
