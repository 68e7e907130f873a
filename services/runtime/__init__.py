"""What every service stands on: loop, commit watermark, dead letters, object store, settings, lifecycle, telemetry."""
