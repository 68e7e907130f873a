"""What these tests need of the machine: root, the cluster's programs, Debian's packages; installs what it may."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

PROGRAMS: Mapping[str, str] = {
    "containerd": "containerd",
    "runc": "runc",
    "iptables": "iptables",
    "ipset": "ipset",
    "conntrack": "conntrack",
    "ip": "iproute2",
    "openssl": "openssl",
    "xz": "xz-utils",
    "dockerd": "docker.io",
    "debootstrap": "debootstrap",
    "java": "default-jre-headless",
    "/usr/lib/cni/bridge": "containernetworking-plugins",
}
"""Program -> the Debian package that brings it."""
SERVERS = {"kafka": "the files of Kafka's test image", "s3": "the files of the S3 server's test image"}
PARTS = {"kube": "the programs of the cluster", **SERVERS}
"""Parts of the shared equipment, and what is missed without them."""


def absent(programs: Mapping[str, str], found: Callable[[str], str | None] = shutil.which) -> list[str]:
    """Packages whose program is not there."""
    return sorted({package for program, package in programs.items() if found(program) is None})


def why_not(
    shared: Path,
    programs: Mapping[str, str] = PROGRAMS,
    parts: Mapping[str, str] = PARTS,
    install: Callable[[Mapping[str, str]], str] | None = None,
) -> str:
    """Why nothing can be started here; empty when everything is there, or was installed just now."""
    if os.geteuid() != 0:
        return "only root can start a Kubernetes node or a Docker Engine of its own"
    for part, what in parts.items():
        if not (shared / part / f"{part}.sh").is_file():
            return f"{what} are absent: {shared / part}"
    return (install or apt_install)(programs) if absent(programs) else ""


def apt_install(programs: Mapping[str, str]) -> str:
    """Install the packages of those that are absent, saying so; why that failed, or the empty string."""
    packages = absent(programs)
    if shutil.which("apt-get") is None:
        return f"this system has no apt-get, and these are missing: {' '.join(packages)}"
    print(f"== installing with apt-get: {' '.join(packages)}", flush=True)
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    steps = (["update", "-qq"], ["install", "-y", "-qq", "--no-install-recommends", *packages])
    for step in steps:
        try:
            done = subprocess.run(
                ["apt-get", *step], env=environment, capture_output=True, text=True, timeout=300, check=False
            )
        except subprocess.TimeoutExpired:
            return f"apt-get {step[0]} did not end within five minutes"
        if done.returncode and step[0] == "install":  # a stale list may do; what is missing then says so here
            return f"apt-get could not install {' '.join(packages)}: {done.stderr.strip()[-400:]}"
    return f"still missing after apt-get: {' '.join(left)}" if (left := absent(programs)) else ""
