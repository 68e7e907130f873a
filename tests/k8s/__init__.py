"""The services on a real Kubernetes: images, manifests, a run under rollouts and deletions, walls that must hold."""
