"""How a cluster is reached: addresses, TLS and SASL as the Kafka client's own options, from settings or environment."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from services.runtime.errors import UserError
from services.runtime.settings import Kafka, load

Cluster = str | Kafka
"""Addresses alone (`host:port,…`, everything else from the environment), or whole settings."""

_PROTOCOLS = {
    (False, False): "PLAINTEXT",
    (True, False): "SSL",
    (False, True): "SASL_PLAINTEXT",
    (True, True): "SASL_SSL",
}


def settings_of(cluster: Cluster) -> Kafka:
    """Settings to reach `cluster` by; for addresses alone the rest comes from `ROLLSTREAM_KAFKA__…`."""
    if isinstance(cluster, Kafka):
        return cluster
    return load().kafka.model_copy(update={"bootstrap": cluster})


def addresses(cluster: Cluster) -> list[str]:
    """The bootstrap addresses, each `host:port`."""
    text = cluster if isinstance(cluster, str) else cluster.bootstrap
    return [part.strip() for part in text.split(",") if part.strip()]


def said(cluster: Cluster) -> str:
    """The addresses as text, for messages."""
    return ",".join(addresses(cluster))


def connection(cluster: Cluster, service: str = "monitor") -> dict[str, Any]:
    """Options of every kafka-python client of `service`, whose name stands where user and files say `{service}`.

    Raises UserError for a secret or certificate file that cannot be read.
    """
    kafka = settings_of(cluster)
    options: dict[str, Any] = {
        "bootstrap_servers": addresses(kafka),
        "security_protocol": _PROTOCOLS[kafka.tls, bool(kafka.mechanism)],
    }
    if kafka.tls:
        options["ssl_check_hostname"] = kafka.check_hostname
        for option, setting in (("ssl_cafile", "ca_file"), ("ssl_certfile", "cert_file"), ("ssl_keyfile", "key_file")):
            path = getattr(kafka, setting).replace("{service}", service)
            if path:
                options[option] = _readable(path, f"kafka.{setting}")
    if kafka.mechanism:
        options["sasl_mechanism"] = kafka.mechanism
        options["sasl_plain_username"] = username_of(kafka, service)
        options["sasl_plain_password"] = password_of(kafka, service)
    return options


def _readable(path: str, setting: str) -> str:
    if not os.access(path, os.R_OK):
        raise UserError("a file of the cluster's settings cannot be read", f"{setting} = {path}", "mount or correct it")
    return path


def username_of(kafka: Kafka, service: str) -> str:
    """The user as which a service logs in."""
    return kafka.username.replace("{service}", service)


def password_of(kafka: Kafka, service: str) -> str:
    """The password with which a service logs in. Raises UserError when its file cannot be read."""
    if not kafka.password_file:
        return kafka.password
    try:
        return Path(kafka.password_file.replace("{service}", service)).read_text().strip()
    except (OSError, UnicodeDecodeError) as e:
        raise UserError(
            f"the password of {service} cannot be read: {e}",
            "kafka.password_file",
            "mount the secret, or correct the path",
        ) from e
