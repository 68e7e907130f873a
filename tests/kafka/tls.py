"""Certificates of a test's own authority, and the properties that open TLS listeners on an Apache Kafka."""

from __future__ import annotations

import subprocess
from pathlib import Path

PROPERTIES = """
listeners=PLAINTEXT://@HOST@:@PORT@,CONTROLLER://@HOST@:@CONTROLLER@,SASL_PLAINTEXT://@HOST@:@SASL@,\
SSL://@HOST@:@TLS@,SASL_SSL://@HOST@:@SASLTLS@
advertised.listeners=PLAINTEXT://@HOST@:@PORT@,SASL_PLAINTEXT://@HOST@:@SASL@,SSL://@HOST@:@TLS@,\
SASL_SSL://@HOST@:@SASLTLS@
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,SSL:SSL,\
SASL_SSL:SASL_SSL
listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config=\
org.apache.kafka.common.security.scram.ScramLoginModule required;
ssl.keystore.type=PEM
ssl.keystore.location={folder}/server.pem
ssl.truststore.type=PEM
ssl.truststore.location={folder}/ca.pem
listener.name.ssl.ssl.client.auth=required
super.users=User:ANONYMOUS;User:CN=rs-admin
"""
"""TLS with client certificates on +300, TLS with SCRAM on +400, beside the listeners of the SCRAM properties."""


def authority(folder: Path, name: str = "ca") -> None:
    """An authority: `{name}.pem`, `{name}.key`."""
    folder.mkdir(parents=True, exist_ok=True)
    _openssl(
        "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={name}",
        "-keyout", f"{folder}/{name}.key", "-out", f"{folder}/{name}.pem",
    )  # fmt: skip


def certificate(folder: Path, name: str, common_name: str, ca: str = "ca") -> None:
    """A certificate for 127.0.0.1 from the authority: `{name}.crt`, `{name}.key`, and both in `{name}.pem`."""
    _openssl(
        "req", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={common_name}",
        "-keyout", f"{folder}/{name}.key", "-out", f"{folder}/{name}.csr",
    )  # fmt: skip
    extensions = folder / f"{name}.ext"
    extensions.write_text("subjectAltName=IP:127.0.0.1\n")
    _openssl(
        "x509", "-req", "-days", "2", "-in", f"{folder}/{name}.csr", "-CA", f"{folder}/{ca}.pem",
        "-CAkey", f"{folder}/{ca}.key", "-CAcreateserial", "-extfile", str(extensions), "-out", f"{folder}/{name}.crt",
    )  # fmt: skip
    both = (folder / f"{name}.key").read_text() + (folder / f"{name}.crt").read_text()
    (folder / f"{name}.pem").write_text(both)


def _openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True, timeout=60)
