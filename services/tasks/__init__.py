"""Tasks as data: what a policy is asked to repair (public half) and how a repair is judged (hidden half)."""
