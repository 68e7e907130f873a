"""How a cluster is reached: every option arrives at the client, and no secret is printed or written down."""

import pytest

from services.runtime.cluster import connection
from services.runtime.errors import UserError
from services.runtime.settings import Kafka, dump_toml, load, secret_environment


def scram(**changes):
    return Kafka(bootstrap="a:1,b:2", mechanism="SCRAM-SHA-512", username="sampler", **changes)


def test_plain_by_default():
    assert connection("a:1, b:2") == {"bootstrap_servers": ["a:1", "b:2"], "security_protocol": "PLAINTEXT"}


def test_tls_and_scram_reach_the_client(tmp_path):
    for name in ("ca", "cert", "key"):
        (tmp_path / name).write_text("x")
    (tmp_path / "password").write_text("secret\n")
    kafka = scram(
        tls=True,
        password_file=str(tmp_path / "password"),
        ca_file=str(tmp_path / "ca"),
        cert_file=str(tmp_path / "cert"),
        key_file=str(tmp_path / "key"),
        check_hostname=False,
    )
    assert connection(kafka) == {
        "bootstrap_servers": ["a:1", "b:2"],
        "security_protocol": "SASL_SSL",
        "ssl_check_hostname": False,
        "ssl_cafile": str(tmp_path / "ca"),
        "ssl_certfile": str(tmp_path / "cert"),
        "ssl_keyfile": str(tmp_path / "key"),
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": "sampler",
        "sasl_plain_password": "secret",
    }


def test_addresses_alone_take_the_rest_from_the_environment(monkeypatch):
    """`--bootstrap ADDRESS` of the commands works on a secured cluster too."""
    monkeypatch.setenv("ROLLSTREAM_KAFKA__MECHANISM", "SCRAM-SHA-256")
    monkeypatch.setenv("ROLLSTREAM_KAFKA__USERNAME", "reader")
    monkeypatch.setenv("ROLLSTREAM_KAFKA__PASSWORD", "secret")
    options = connection("c:3")
    assert options["bootstrap_servers"] == ["c:3"]
    assert options["security_protocol"] == "SASL_PLAINTEXT"
    assert options["sasl_plain_password"] == "secret"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"mechanism": "SCRAM-SHA-256"}, "needs username"),
        ({"mechanism": "PLAIN", "username": "a", "password": "b"}, "needs tls"),
        ({"tls": True, "cert_file": "a"}, "belong together"),
    ],
)
def test_half_a_configuration_is_refused(settings, words):
    with pytest.raises(UserError, match=words):
        load(kafka=settings)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(UserError, match=r"kafka\.ca_file"):
        connection(Kafka(bootstrap="a:1", tls=True, ca_file=str(tmp_path / "none")))
    with pytest.raises(UserError, match=r"kafka\.password_file"):
        connection(scram(password_file=str(tmp_path / "none")))


def test_secrets_are_masked_and_travel_by_environment_only():
    settings = load(kafka=scram(password="hush").model_dump(), store={"secret_key": "hush"})
    assert "hush" not in repr(settings)
    assert "hush" not in dump_toml(settings)
    assert secret_environment(settings) == {
        "ROLLSTREAM_KAFKA__PASSWORD": "hush",
        "ROLLSTREAM_STORE__SECRET_KEY": "hush",
    }
