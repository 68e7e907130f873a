"""What all tests share: where the optional real servers lie, and a quiet, small torch."""

import os
from pathlib import Path

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

SHARED = Path(__file__).parents[2] / "shared"


@pytest.fixture(scope="session")
def shared_equipment() -> Path:
    """Folder of the optional test equipment (real Apache Kafka, S3 server, data); skips where it is absent."""
    if not SHARED.is_dir():
        pytest.skip(f"test equipment is absent: {SHARED}")
    return SHARED
