"""Clusters of a real Apache Kafka for whole runs; everything here is skipped unless `make test-kafka` asks for it."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from schemas.access import principals
from tests.apache import QUICK, Cluster, apache_kafka
from tests.e2e.conftest import cache  # noqa: F401  # one cold start for all runs
from tests.kafka import tls

WANTED = "ROLLSTREAM_TEST_KAFKA"
"""Environment variable that asks for these tests: whole runs on clusters take minutes."""
HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not os.environ.get(WANTED):
        for item in items:
            if HERE in item.path.parents:
                item.add_marker(pytest.mark.skip(reason="minutes long: run by `make test-kafka`"))


@pytest.fixture(scope="session")
def equipment(shared_equipment: Path) -> Path:
    """Where the distribution lies; skips where it or Java is absent."""
    for missing in (tool for tool in ("java", "openssl") if shutil.which(tool) is None):
        pytest.skip(f"{missing} is absent: Apache Kafka cannot be started as these tests need it")
    if not (shared_equipment / "kafka" / "kafka.sh").exists():
        pytest.skip(f"the distribution of Apache Kafka is absent: {shared_equipment / 'kafka'}")
    return shared_equipment


@dataclass(frozen=True)
class Secured:
    """A cluster with SCRAM and TLS listeners and no users yet; `folder` holds certificates and passwords."""

    cluster: Cluster
    folder: Path
    passwords: dict[str, str]

    def kafka(self, **changes: object) -> dict[str, object]:
        """The `[kafka]` section with which every service logs in as itself over TLS."""
        base: dict[str, object] = {
            "bootstrap": self.cluster.scram_tls,
            "tls": True,
            "ca_file": str(self.folder / "ca.pem"),
            "mechanism": "SCRAM-SHA-256",
            "username": "rs-{service}",
            "password_file": str(self.folder / "{service}.password"),
        }
        return base | changes


@pytest.fixture(scope="session")
def secured(equipment: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("secured")
    tls.authority(folder)
    tls.authority(folder, "stranger")
    tls.certificate(folder, "server", "kafka")
    tls.certificate(folder, "admin", "rs-admin")
    passwords = {name: secrets.token_hex(12) for name in principals()}
    for name, password in passwords.items():
        (folder / f"{name}.password").write_text(password + "\n")
    extra = QUICK + tls.PROPERTIES.replace("{folder}", str(folder))
    with apache_kafka(equipment, folder / "cluster", scram=True, extra=extra) as cluster:
        yield Secured(cluster, folder, passwords)
