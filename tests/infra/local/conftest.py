"""A live broker with a run on it, as the monitor's tests have it."""

from tests.services.monitor.conftest import bootstrap, run_records, stack

__all__ = ["bootstrap", "run_records", "stack"]
