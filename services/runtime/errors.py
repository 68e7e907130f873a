"""The one error class for what a person caused: what was wrong, where, and what to do."""

from __future__ import annotations


class UserError(Exception):
    """A mistake that a person can mend; the command line prints it as one message and exits with 2."""

    def __init__(self, what: str, where: str | None = None, do: str | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.do = do

    def __str__(self) -> str:
        parts = [self.what]
        if self.where:
            parts.append(f"where: {self.where}")
        if self.do:
            parts.append(f"what to do: {self.do}")
        return "\n  ".join(parts)


class NotYet(UserError):
    """What is needed does not answer, or is not there: whoever prepares a run waits for it for a while."""
