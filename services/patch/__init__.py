"""A candidate's change as text: how it is rendered, and the strict grammar by which it is admitted (pure)."""
