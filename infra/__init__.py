"""Infrastructure that a person runs: the embedded broker, the laptop stack, images and manifests."""
