"""What all tests share: where the optional real servers lie, and a quiet, small torch."""

import os
from pathlib import Path

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

SHARED = Path(__file__).parents[2] / "shared"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with slow tests come first: begun last, one of them would run on alone while other workers have nothing."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


@pytest.fixture(scope="session")
def shared_equipment() -> Path:
    """Folder of the optional test equipment (real Apache Kafka, S3 server, data); skips where it is absent."""
    if not SHARED.is_dir():
        pytest.skip(f"test equipment is absent: {SHARED}")
    return SHARED
