"""The compose file says what it must: every service, locked down, no route out; settings that load."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from services.runtime.settings import load
from tests.infra.compose.stack import FOLDER, command, environment

ROOT = Path(__file__).parents[3]
FILE = yaml.safe_load((FOLDER / "compose.yaml").read_text())
CONTAINERS: dict[str, dict[str, Any]] = FILE["services"]
SERVICES = {path.parent.name for path in (ROOT / "services").glob("*/main.py")}
SERVERS = {"kafka", "store", "hidden-store"}
ONCE = {"disks", "prepare", "rollstream"}
JAILS = {"sandbox", "verifier"}


def test_every_service_is_there_and_nothing_else():
    assert set(CONTAINERS) == SERVICES | SERVERS | ONCE


def test_the_services_are_those_of_the_kubernetes_base():
    base = ROOT / "infra" / "k8s" / "base"
    found = set()
    for path in base.rglob("*.yaml"):
        for document in yaml.safe_load_all(path.read_text()):
            if document and document.get("kind") in ("Deployment", "StatefulSet", "Job"):
                images = [
                    c["image"] for c in document["spec"]["template"]["spec"].get("containers", []) if "image" in c
                ]
                found |= {image.partition(":")[0] for image in images}
    assert found == {f"rollstream-{name}" for name in SERVICES | {"prepare"}}


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_a_service_runs_its_own_image_with_probe_and_time_to_drain(name):
    container = CONTAINERS[name]
    assert container["image"] == f"${{ROLLSTREAM_REGISTRY:-}}rollstream-{name}:${{ROLLSTREAM_TAG:-dev}}"
    assert container["command"] == ["up", "--service", name]
    assert "/healthz/ready" in container["healthcheck"]["test"][-1]
    assert container["depends_on"]["prepare"]["condition"] == "service_completed_successfully"
    grace = int(container["stop_grace_period"].removesuffix("s"))
    assert grace >= load().runtime.drain_s + 15 + 10, "drain, the watchdog after it, and the end of the jails"


@pytest.mark.parametrize("name", sorted(CONTAINERS))
def test_every_container_is_locked_down(name):
    container = CONTAINERS[name]
    assert container["read_only"] is True
    assert container["cap_drop"] == ["ALL"]
    assert "no-new-privileges:true" in container["security_opt"]
    assert container["tmpfs"] == [
        "/tmp:mode=1777,size=1g,exec" if name in JAILS | {"kafka"} else "/tmp:mode=1777,size=1g"
    ]
    assert container["mem_limit"]
    assert container["pids_limit"]
    assert container["logging"]["options"]["max-size"], "no log fills the disk"
    assert not container.keys() & {"privileged", "ports", "container_name"}
    # The one that is root owns nothing but the right to hand volumes over, and has no network.
    assert (container["user"] == "0:0") == (name == "disks")
    assert container.get("cap_add", []) == (["CHOWN"] if name == "disks" else [])
    unconfined = {"seccomp:unconfined", "apparmor:unconfined"} & set(container["security_opt"])
    assert bool(unconfined) == (name in JAILS), "only those that make jails need what the profiles refuse"
    assert container["restart"] == ("no" if name in ONCE else "on-failure" if name == "dispatch" else "unless-stopped")


def test_no_network_leads_out():
    assert all(network == {"internal": True} for network in FILE["networks"].values())
    assert CONTAINERS["disks"]["network_mode"] == "none"


def peers(name: str) -> set[str]:
    """Who shares a network with it."""
    mine = set(CONTAINERS[name].get("networks", ()))
    return {other for other, c in CONTAINERS.items() if other != name and mine & set(c.get("networks", ()))}


def test_the_sandbox_meets_kafka_and_the_store_and_nobody_else():
    assert peers("sandbox") == {"kafka", "store"}


def test_only_verifier_and_preparation_reach_the_hidden_checks():
    assert peers("hidden-store") == {"verifier", "prepare"}
    assert peers("verifier") == {"kafka", "store", "hidden-store", "prepare"}
    holders = {name for name, c in CONTAINERS.items() if "hidden-store" in c.get("secrets", ())}
    assert holders == {"hidden-store", "verifier", "prepare"}


def test_the_settings_load_and_name_the_stacks_own_addresses():
    settings = load(FOLDER / "run.toml")
    assert settings.kafka.bootstrap == "kafka:9092"
    for section, name in ((settings.store, "store"), (settings.hidden_store, "hidden-store")):
        assert section.endpoint == f"{name}:7070"
        assert section.secret_key_file == f"/run/secrets/{name}"
        assert f"ROOT_ACCESS_KEY={section.access_key}" in CONTAINERS[name]["entrypoint"][2]
    assert settings.store.url.partition("//")[2].partition("/")[0] != settings.hidden_store.url.partition("//")[2]


def test_compose_accepts_the_file(tmp_path):
    compose = command()
    if compose is None:
        pytest.skip(
            "neither the compose plugin of docker nor docker-compose is installed (apt-get install docker-compose)"
        )
    for name in ("store", "hidden-store"):
        (tmp_path / name).write_text("x\n")
    found = subprocess.run(
        [*compose, "config"], cwd=FOLDER, env=environment(secrets=tmp_path, tag="1.2", registry="r.example/team/"),
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert found.returncode == 0, found.stderr
    said = yaml.safe_load(found.stdout)
    assert said["services"]["gate"]["image"] == "r.example/team/rollstream-gate:1.2"
    assert set(said["services"]) >= SERVICES
