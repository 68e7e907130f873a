"""Kubernetes manifests, and what of them is derived from the code."""
