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


def absent(found: Callable[[str], str | None] = shutil.which) -> list[str]:
    """Packages whose program is not there."""
    return sorted({package for program, package in PROGRAMS.items() if found(program) is None})


def why_not(shared: Path, install: Callable[[list[str]], str] | None = None) -> str:
    """Why nothing can be started here; empty when everything is there, or was installed just now."""
    if os.geteuid() != 0:
        return "only root can start a Kubernetes node and a Docker Engine of its own"
    if not (shared / "kube" / "kube.sh").is_file():
        return f"the programs of the cluster are absent: {shared / 'kube'}"
    for part in ("kafka", "s3"):
        if not (shared / part / f"{part}.sh").is_file():
            return f"what the test image of {part} is made of is absent: {shared / part}"
    if missing := absent():
        return (install or apt_install)(missing)
    return ""


def apt_install(packages: list[str]) -> str:
    """Install them, saying so; why that failed, or the empty string."""
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
    return f"still missing after apt-get: {' '.join(left)}" if (left := absent()) else ""
