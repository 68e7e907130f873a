"""Looks at built images: what they hold, how large they are, and that they start as a careful cluster runs them.

Used by the tests of this folder with an engine of their own, and by whoever has the images at hand already.
"""

from __future__ import annotations

import json
import subprocess
import time
import tomllib

from tests.infra.images.dockerfile import ROOT, parts

LIGHT_BYTES = 400_000_000
CAREFUL = (
    "--read-only", "--tmpfs", "/tmp", "--user", "10001", "--network", "none", "--cap-drop", "ALL",
    "--security-opt", "no-new-privileges", "--pids-limit", "256",
)  # fmt: skip
"""What a pod of the `restricted` standard with a read-only root has, said to Docker."""
JAILS = ("--security-opt", "seccomp=unconfined", "--security-opt", "apparmor=unconfined", "--tmpfs", "/tmp:exec")
"""What those have beside it that make jails, and try them before anything else."""

_INSIDE = """
import importlib, importlib.metadata, importlib.util, json, os, pkgutil, stat, sys
modules = sys.argv[1:]
for name in modules:
    package = importlib.import_module(name)
    for found in pkgutil.walk_packages(getattr(package, "__path__", []), name + "."):
        if not found.name.endswith("__main__"):
            importlib.import_module(found.name)
def ours(module):
    spec = getattr(module, "__spec__", None)
    return spec and str(spec.origin).startswith("/opt/rollstream/") and str(spec.origin).endswith(".py")
loaded = [m.__spec__ for m in list(sys.modules.values()) if ours(m)]
files = [os.path.join(at, n) for at, _, names in os.walk("/", followlinks=False) for n in names
         if not at.startswith(("/proc", "/sys", "/dev", "/tmp"))]
print(json.dumps({
    "uid": os.getuid(),
    "home": os.environ["HOME"],
    "version": importlib.metadata.version("rollstream"),
    "loaded": len(loaded),
    "uncompiled": [s.name for s in loaded if not os.path.exists(s.cached)],
    "torch": importlib.util.find_spec("torch") is not None,
    "matplotlib": importlib.util.find_spec("matplotlib") is not None,
    "rights": [f for f in files if os.path.isfile(f) and os.lstat(f).st_mode & (stat.S_ISUID | stat.S_ISGID)],
    "writable": [f for f in files if f.startswith(("/opt", "/usr", "/etc")) and os.access(f, os.W_OK)],
    "services": sorted(n for n in os.listdir("/opt/rollstream/services")
                       if os.path.exists(f"/opt/rollstream/services/{n}/main.py")),
}))
"""


class Images:
    """Images of one tag in one engine."""

    def __init__(self, url: str, tag: str) -> None:
        self.url, self.tag = url, tag

    def docker(self, *words: str, timeout_s: float = 120) -> subprocess.CompletedProcess[str]:
        """Run the docker command."""
        line = ["docker", "--host", self.url, *words]
        return subprocess.run(
            line, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout_s, check=False
        )

    def name(self, service: str) -> str:
        """The image of a service."""
        return f"rollstream-{service}:{self.tag}"

    def inspect(self, service: str) -> dict:
        """What the engine knows about it."""
        said = self.docker("image", "inspect", self.name(service))
        assert said.returncode == 0, said.stderr
        return json.loads(said.stdout)[0]

    def run(self, service: str, *words: str, entrypoint: str = "") -> subprocess.CompletedProcess[str]:
        """Run it as a careful cluster does."""
        given = ["--entrypoint", entrypoint] if entrypoint else []
        return self.docker("run", "--rm", *CAREFUL, *given, self.name(service), *words, timeout_s=300)


def check_description(images: Images, service: str) -> int:
    """User, entry point, labels, and the size of those without torch. Returns the size in bytes."""
    found = images.inspect(service)
    config = found["Config"]
    assert config["User"] == "10001:10001"
    assert config["Entrypoint"] == ["rollstream"]
    labels = {k.removeprefix("org.opencontainers.image."): v for k, v in config["Labels"].items()}
    assert {"title", "description", "version", "revision"} <= set(labels)
    if "torch" not in parts(service):
        assert found["Size"] < LIGHT_BYTES, f"{service}: {found['Size'] / 1e6:.0f} MB"
    return found["Size"]


def check_start(images: Images, service: str) -> None:
    """Without an address of a cluster it ends in one message that says what to do, and writes nowhere but to /tmp."""
    words = ("prepare",) if service == "prepare" else ("up", "--service", service)
    said = images.run(service, *words)
    assert said.returncode == 2, said.stderr
    lines = said.stderr.splitlines()
    assert lines[0].startswith("rollstream: kafka.bootstrap is empty"), said.stderr
    assert lines[-1].strip().startswith("what to do:")
    assert "Traceback" not in said.stderr


def check_wait(images: Images, service: str) -> None:
    """With an address where nobody answers it waits and says so, as the container's first process, until SIGTERM."""
    given = ("--env", "ROLLSTREAM_KAFKA__BOOTSTRAP=127.0.0.1:9")
    more = JAILS if "jail" in parts(service) else ()
    started = images.docker("run", "--detach", *CAREFUL, *more, *given, images.name(service))
    assert started.returncode == 0, started.stderr
    container = started.stdout.strip()
    try:
        end = time.monotonic() + 60
        while "waiting for the broker" not in images.docker("logs", container).stderr:
            assert time.monotonic() < end, images.docker("logs", container)
            time.sleep(0.2)
        images.docker("stop", "--time", "30", container)
        state = images.docker("inspect", "--format", "{{.State.ExitCode}}", container).stdout.strip()
        assert state == "0", images.docker("logs", container)
    finally:
        images.docker("rm", "--force", container)


def check_contents(images: Images, service: str) -> None:
    """Its own service and no other, byte code for everything it loads, no way to more rights, nothing writable."""
    own = parts(service) & {p.name for p in (ROOT / "services").iterdir()}
    said = images.run(service, "-c", _INSIDE, *sorted(f"services.{name}" for name in own), entrypoint="python")
    assert said.returncode == 0, said.stderr
    found = json.loads(said.stdout)
    assert (found["uid"], found["home"]) == (10001, "/tmp")
    assert found["version"] == tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert found["loaded"] > 50
    assert found["uncompiled"] == []
    assert found["rights"] == []
    assert found["writable"] == []
    assert found["torch"] == ("torch" in parts(service))
    assert not found["matplotlib"]
    assert set(found["services"]) == own
