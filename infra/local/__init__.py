"""The laptop stack: prepares a run, starts broker and services as processes, supervises them, reports."""
