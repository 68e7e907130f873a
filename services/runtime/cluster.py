"""How a cluster is reached: addresses, TLS and SASL as the Kafka client's own options, from settings or environment."""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
from pathlib import Path
from typing import Any

from services.runtime.address import host_and_port
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
    from services.runtime.batches import guard

    guard()
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


def login_doubt(cluster: Cluster, service: str = "monitor") -> str:
    """What to add to "no broker answers" where there is a login: a refused one looks the same to the client.

    The broker says why and closes at once, and the client often sees only the end.
    """
    kafka = settings_of(cluster)
    return f", or it refuses the login of {username_of(kafka, service)}" if kafka.mechanism else ""


_ALERT_S = 0.3
"""How long a broker is given to say that it misses a certificate or does not take ours: TLS 1.3 says so afterwards."""
_TRUSTED: set[tuple[str, tuple[str | None, ...]]] = set()


def check_trust(cluster: Cluster, service: str = "monitor") -> None:
    """One handshake with the first broker that answers, since the client only repeats a refused one for ever.

    Done once in a process for the same settings. Raises UserError when its certificate is not vouched for, or when it
    does not take ours. What may pass by itself (no broker there, a connection that is cut) raises nothing.
    """
    kafka = settings_of(cluster)
    if not kafka.tls:
        return
    options = connection(kafka, service)
    where = said(cluster)
    files = tuple(options.get(name) for name in ("ssl_cafile", "ssl_certfile", "ssl_keyfile"))
    if (where, files) in _TRUSTED:
        return
    try:
        context = ssl.create_default_context(cafile=options.get("ssl_cafile"))
        context.check_hostname = kafka.check_hostname
        if "ssl_certfile" in options:
            context.load_cert_chain(options["ssl_certfile"], options["ssl_keyfile"])
    except (ssl.SSLError, OSError) as e:
        raise UserError(f"the TLS files cannot be used: {e}", "kafka.ca_file, kafka.cert_file, kafka.key_file") from e
    for address in addresses(kafka):
        host, port = host_and_port(address, "kafka.bootstrap")
        try:
            with (
                socket.create_connection((host, port), 5.0) as plain,
                context.wrap_socket(plain, server_hostname=host) as channel,
            ):
                channel.settimeout(_ALERT_S)
                with contextlib.suppress(TimeoutError):
                    channel.recv(1)
            _TRUSTED.add((where, files))
            return
        except ssl.SSLCertVerificationError as e:
            why = f"the broker's certificate is not trusted: {e.verify_message}"
            raise UserError(why, where, "set kafka.ca_file to the authority that signed it") from e
        except ssl.SSLError as e:
            if "CERTIFICATE" in str(e.reason):
                why = f"the broker does not take this client's certificate: {e.reason}"
                raise UserError(why, where, "set kafka.cert_file and kafka.key_file to what it expects") from e
        except OSError:
            continue


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
