"""What must be made before a run's first record, wherever the run lives."""
