"""What every service stands on: the loop, commit watermark, dead letters, object store, settings and telemetry."""
