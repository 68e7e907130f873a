"""What each service's code reads and writes is what the topics declare, and so what its credentials allow."""

import ast
from pathlib import Path

import pytest

from schemas import topics
from schemas.access import OPERATOR, READERS, RECORDER, principals

SERVICES = Path(__file__).parents[3] / "services"
SCALED = sorted(set(principals()) - {*READERS, OPERATOR})


def names_in(node):
    """Topics named by constants anywhere below a node."""
    found = (getattr(topics, n.id, None) for n in ast.walk(node) if isinstance(n, ast.Name))
    return {topic.name for topic in found if isinstance(topic, topics.Topic)}


def calls(service, name):
    """Every call of `name` in the modules of a service."""
    for path in sorted((SERVICES / service).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name:
                yield node


@pytest.mark.parametrize("service", SCALED)
def test_what_a_service_reads_is_what_it_is_declared_to_consume(service):
    spec = next(call for call in calls(service, "ServiceSpec"))
    assert spec.args[0].value == service
    read = set().union(*(names_in(k.value) for k in spec.keywords if k.arg in ("inputs", "broadcast")))
    assert read == {t.name for t in topics.ALL if service in t.consumers}


@pytest.mark.parametrize("service", SCALED)
def test_what_a_service_writes_is_what_it_is_declared_to_produce(service):
    written = set().union(*(names_in(call.args[0]) for call in calls(service, "Output") if call.args))
    assert written == {t.name for t in topics.ALL if service in t.producers}


def test_no_other_service_stands_on_the_loop():
    with_main = {path.parent.name for path in SERVICES.glob("*/main.py")}
    assert with_main == {*SCALED, RECORDER}
