"""The cluster, the images and the deployed run that these tests share; skipped unless `make test-k8s` asks for them."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import SHARED
from tests.k8s.building import NEXT, NOW, SERVERS, Builder, image
from tests.k8s.cluster import Cluster
from tests.k8s.evidence import evidence
from tests.k8s.outside import Outside
from tests.k8s.pods import PodWatch
from tests.k8s.progress import Table, say, timed
from tests.k8s.run import SERVICES, Run
from tests.services.docker_engine import Engine

WANTED = "ROLLSTREAM_TEST_K8S"
"""Environment variable that asks for these tests (they take minutes) and names a folder for what they start."""
CLUSTER, ENGINE = "cluster", "engine"
"""What lies in that folder."""
BORROWED = "ROLLSTREAM_TEST_K8S_CLUSTER"
"""Environment variable for whoever works on these tests: folder of a running cluster that has all images, KEDA and
Strimzi's definitions. Nothing is built or stopped then, and what is deployed stays there."""
NAMESPACES = ("rs-test", "rs-test-sandbox")
RUN_ID = "k8s"
HERE = Path(__file__).parent
ORDER = (
    "test_manifests", "test_pod_security", "test_sandbox_pod",
    "test_walls", "test_rollouts", "test_scaling", "test_account",
)  # fmt: skip
"""What is not named comes first, then what needs no images while they are built; one run goes through the rest."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    ours = [item for item in items if HERE in item.path.parents and "cluster" in getattr(item, "fixturenames", ())]
    if not os.environ.get(WANTED):
        for item in ours:
            item.add_marker(pytest.mark.skip(reason="minutes long: run by `make test-k8s`"))
        return
    items.sort(key=lambda item: ORDER.index(item.path.stem) if item.path.stem in ORDER else -1)


_shown: set[tuple[str, str]] = set()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):
    """A failed test shows what the cluster says about its pods."""
    outcome = yield
    report = outcome.get_result()
    cluster = getattr(item.session, "rollstream_cluster", None)
    if report.failed and HERE in item.path.parents:
        say(f"FAILED {item.name} ({report.when}): {call.excinfo.exconly()[:600] if call.excinfo else ''}")
        if cluster is not None and (report.when, str(call.excinfo)) not in _shown:
            _shown.add((report.when, str(call.excinfo)))  # a fixture that failed fails every test that wants it
            report.sections.append(("the cluster", "\n".join(evidence(cluster, namespace) for namespace in NAMESPACES)))


@pytest.fixture(scope="session")
def table() -> Iterator[Table]:
    """What was measured; printed when all is over."""
    measured = Table()
    yield measured
    for line in measured.lines():
        print(line, flush=True)


@pytest.fixture(scope="session")
def scratch() -> Path:
    """The folder for everything that these tests start."""
    return Path(os.environ[WANTED])


@pytest.fixture(scope="session")
def builder(scratch: Path) -> Iterator[Builder]:
    """The images, under construction from now on."""
    made = Builder(Engine(scratch / ENGINE), SERVICES)
    try:
        if not os.environ.get(BORROWED):
            made.start()
        yield made
    finally:
        with timed("ending the engine"):
            made.stop()


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest, scratch: Path, builder: Builder) -> Iterator[Cluster]:
    """A node with Strimzi's definitions and KEDA running; images are built meanwhile."""
    borrowed = os.environ.get(BORROWED)
    started = Cluster(SHARED / "kube" / "kube.sh", Path(borrowed or scratch / CLUSTER), bool(borrowed))
    try:
        if not borrowed:
            with timed("starting the cluster"):
                started.start()
            with timed("installing KEDA and Strimzi's definitions"):
                started.kubectl("apply", "--server-side", "-f", str(SHARED / "kube" / "crds"), timeout_s=120)
                started.keda()
            services = [image(service, tag) for tag in (NOW, NEXT) for service in SERVICES]
            builder.deliver(started, [*services, image("prepare", NOW), *SERVERS])
        request.session.rollstream_cluster = started  # type: ignore[attr-defined]  # for the report above
        yield started
    finally:
        request.session.rollstream_cluster = None  # type: ignore[attr-defined]  # as above
        with timed("stopping the cluster"):
            started.stop()


@pytest.fixture(scope="session")
def namespaces() -> tuple[str, str]:
    """Of the services, and of those that make jails."""
    return NAMESPACES


@pytest.fixture(scope="session")
def bootstrap() -> str:
    """Kafka's address inside the cluster."""
    return f"kafka.{NAMESPACES[0]}.svc:9092"


@pytest.fixture(scope="session")
def new_images() -> dict[str, str]:
    """What each service is rolled to."""
    return {service: image(service, NEXT) for service in SERVICES}


@pytest.fixture(scope="session")
def run(cluster: Cluster, builder: Builder, bootstrap: str, table: Table) -> Iterator[Run]:
    """The test's overlay, deployed, prepared, ready, and two updates on its way."""
    if not cluster.borrowed:
        with timed("waiting for the images to be in the node"):
            builder.delivered()
    with contextlib.ExitStack() as cleanup:
        pods = PodWatch(cluster)
        cleanup.callback(pods.close)
        applied = time.monotonic()
        with timed("applying the overlay"):
            cluster.kubectl("apply", "--server-side", "-k", str(HERE / "overlay"), timeout_s=180)
        line = cluster.inside(NAMESPACES[0], sys.executable, "-m", "tests.k8s.outside", "watch", bootstrap, RUN_ID)
        outside = Outside(line)
        cleanup.callback(outside.close)
        deployed = Run(cluster, pods, outside, table)
        deployed.find()
        with timed("waiting for the preparation"):
            cluster.kubectl("-n", NAMESPACES[0], "wait", "--for=condition=Complete", "job/prepare", "--timeout=180s",
                            timeout_s=190)  # fmt: skip
        with timed("waiting for all pods"):
            deployed.settled()
        for service in deployed.workloads:
            ready = deployed.pod(service).ready or applied
            table.put(service, "apply to ready", f"{ready - applied:.1f} s")
        with timed("waiting for two updates"):
            deployed.progress(2)
        yield deployed
