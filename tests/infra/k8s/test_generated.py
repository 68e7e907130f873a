"""Strimzi's topics and users are what the code declares, and what is committed is what the generator makes."""

import shutil
import subprocess
import sys

import pytest
import yaml

from infra.k8s import generate
from schemas.access import principals, rules
from schemas.topics import ALL, dead_letter
from services.runtime.errors import UserError
from services.runtime.settings import load
from tests.infra.k8s.render import ROOT


def documents(name):
    return list(yaml.safe_load_all((generate.FOLDER / name).read_text()))


@pytest.fixture(scope="module")
def production():
    return load(generate.SETTINGS, kafka={"password": "-"})


def test_what_is_committed_is_what_the_code_says():
    command = [sys.executable, "-m", "infra.k8s.generate", "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_a_drift_is_named(tmp_path):
    """Somebody edits a file, or the declarations change."""
    for name in ("topics.yaml", "users.yaml"):
        shutil.copy(generate.FOLDER / name, tmp_path)
    edited = tmp_path / "users.yaml"
    edited.write_text(edited.read_text().replace("Write", "All", 1))
    assert generate.main(["--check", "--to", str(tmp_path)]) == 1
    assert generate.main(["--to", str(tmp_path)]) == 0
    assert generate.main(["--check", "--to", str(tmp_path)]) == 0


def test_every_topic_is_there_as_it_is_made_anywhere_else(production):
    found = {d["metadata"]["name"]: d["spec"] for d in documents("topics.yaml")}
    letters = {name for topic in ALL if (name := dead_letter(topic))}
    assert found.keys() == {topic.name for topic in ALL} | letters
    for topic in ALL:
        spec = found[topic.name]
        assert spec["partitions"] == topic.partitions(production.kafka.partitions)
        assert spec["replicas"] == 3
        assert topic.config().items() <= spec["config"].items()
        assert all(isinstance(value, str) for value in spec["config"].values())


def test_users_have_exactly_the_rights_of_the_declarations(production):
    held = set()
    for user in documents("users.yaml"):
        service = user["metadata"]["name"].removeprefix("rollstream-")
        assert user["spec"]["authentication"] == {"type": "scram-sha-512"}
        for acl in user["spec"]["authorization"]["acls"]:
            assert acl["resource"]["patternType"] == "literal"
            for operation in acl["operations"]:
                held.add((service, operation.lower(), acl["resource"]["type"], acl["resource"]["name"]))
    assert held == {(r.principal, r.operation, r.kind, r.name) for r in rules(production.run_id)}
    assert {name for name, *_ in held} == set(principals())


def test_one_login_for_all_is_refused(production):
    kafka = production.kafka.model_copy(update={"username": "everybody"})
    with pytest.raises(UserError, match="one for each service"):
        generate.users(production.model_copy(update={"kafka": kafka}))


@pytest.mark.parametrize(
    "value", ["1", "true", "yes", "a: b", "", "x#y", "-", "{service}", "rollout.requested.v1", "ü"]
)
def test_texts_stay_texts(value):
    """YAML reads much as numbers, truths or comments that is none."""
    document = {"map": {"key": value}, "list": [value, {"deep": [value] * 40}]}
    assert list(yaml.safe_load_all(generate.yaml([document]))) == [document]
