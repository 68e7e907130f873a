"""The code is typed, linted and formatted, and arrows between folders only point down."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SHARED = {"patch", "runtime", "agent", "tasks", "planner", "watch"}
PURE = {"patch", "agent", "tasks", "planner", "watch"}
CLIENTS = {"kafka", "aiokafka", "faust", "minio", "docker", "confluent_kafka"}


@pytest.mark.parametrize(
    "command", [("ruff", "check", "."), ("ruff", "format", "--check", "."), ("mypy",)], ids=lambda c: " ".join(c)
)
@pytest.mark.timeout(300)
def test_static_checks(command):
    done = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def modules():
    for top in ("schemas", "services", "infra"):
        for path in sorted((ROOT / top).rglob("*.py")):
            yield path.relative_to(ROOT)


def imports(path):
    for node in ast.walk(ast.parse((ROOT / path).read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def test_arrows_only_point_down():
    wrong = []
    for path in modules():
        for name in imports(path):
            parts = name.split(".")
            if path.parts[0] == "schemas" and parts[0] in ("services", "infra"):
                wrong.append(f"{path} imports {name}: schemas import nothing of ours")
            if path.parts[:2] == ("infra", "broker") and parts[0] == "services":
                wrong.append(f"{path} imports {name}: the broker stands alone")
            if path.parts[0] != "services" or len(path.parts) < 3:
                continue
            me = path.parts[1]
            if parts[0] == "infra":
                wrong.append(f"{path} imports {name}: services stand below infra")
            if parts[0] == "services" and len(parts) > 1 and parts[1] not in SHARED | {me}:
                wrong.append(f"{path} imports {name}: another service")
            if (
                me in SHARED
                and parts[0] == "services"
                and len(parts) > 1
                and parts[1] not in (me, "runtime", "tasks", "patch")
            ):
                wrong.append(f"{path} imports {name}: shared libraries stand below the services")
            if me in PURE and parts[0] in CLIENTS:
                wrong.append(f"{path} imports {name}: a pure library")
    assert not wrong, "\n".join(wrong)


def test_every_module_says_why_it_exists():
    mute = [str(p) for p in modules() if not ast.get_docstring(ast.parse((ROOT / p).read_text()))]
    assert not mute


PRINTS_ITSELF = {
    "services/runtime/screen.py": "it is the way",
    "services/runtime/logs.py": "lines of JSON, for a file",
    "infra/prepare/coldstart_job.py": "lines of JSON, for the process that started it",
}


def test_commands_print_through_the_screen_alone():
    """Text that others wrote reaches a terminal escaped and bounded: there is one way, runtime/screen."""
    wrong = []
    for path in modules():
        mine = path.parts[0] == "services" or path.parts[:2] in (("infra", "local"), ("infra", "prepare"))
        if not mine or str(path) in PRINTS_ITSELF:
            continue
        for node in ast.walk(ast.parse((ROOT / path).read_text())):
            if not isinstance(node, ast.Call):
                continue
            name = ast.unparse(node.func)
            text = node.args and isinstance(node.args[0], ast.JoinedStr | ast.Constant)
            if (
                name in ("print", "typer.echo", "click.echo", "typer.secho")
                or name.rpartition(".")[2] in ("Console", "print_exc", "print_exception")
                or name.startswith(("sys.stdout.write", "sys.stderr.write"))
                or (name.endswith(".print") and text)
            ):
                wrong.append(f"{path}:{node.lineno} calls {name}: use services.runtime.screen")
    assert not wrong, "\n".join(wrong)
