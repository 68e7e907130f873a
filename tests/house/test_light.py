"""Services whose images carry no torch start without it, and no service needs what only reports and tests need."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
LIGHT = ("dispatch", "closure", "admission", "sandbox", "verifier", "recorder")
HEAVY = {"torch", "transformers", "tokenizers"}
NEVER = {"matplotlib", "pytest", "hypothesis", "_pytest"}
PROGRAM = """
import importlib, sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if {name, name.partition(".")[0]} & BLOCKED:
            raise ModuleNotFoundError(f"{name} is not in this image", name=name)

sys.meta_path.insert(0, Absent())
for service in SERVICES:
    importlib.import_module(f"services.{service}.main")
importlib.import_module("services.runtime.alone")
for look in ("audit_run", "tap_run", "show_verdicts"):
    getattr(importlib.import_module("infra.local.looks"), look)
importlib.import_module("services.monitor.tap")
importlib.import_module("services.monitor.verdicts")
"""


def imported(services, blocked):
    program = f"SERVICES, BLOCKED = {services!r}, {blocked!r}\n{PROGRAM}"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr


def test_light_services_are_imported_without_torch():
    imported(LIGHT, HEAVY | NEVER)


def test_no_service_imports_what_only_reports_and_tests_need():
    imported((*LIGHT, "trainer", "gate", "sampler"), NEVER)


def test_what_is_called_in_a_services_container_needs_no_broker_of_ours():
    """Backup, audit, repair and the other looks at a run on a cluster: the images hold no embedded broker."""
    modules = ("backup", "looks", "recorded", "repair", "watch")
    program = f"SERVICES, BLOCKED = (), {{'infra.broker'}}\n{PROGRAM}"
    program += "".join(f"importlib.import_module('infra.local.{name}')\n" for name in modules)
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
