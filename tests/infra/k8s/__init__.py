"""Tests of the Kubernetes manifests that need no cluster."""
