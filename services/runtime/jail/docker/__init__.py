"""The Docker backend: one fresh container per jail, evidence from a control group above it."""
