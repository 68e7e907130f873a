"""Hidden pytest files as check-sets: outside the jail over an interface (E2), or inside it (E1)."""
