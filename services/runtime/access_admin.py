"""Gives every service's principal on a cluster exactly the rights that `schemas.access` derives, and its password."""

from __future__ import annotations

from kafka import KafkaAdminClient
from kafka.admin import (
    ACL,
    ACLOperation,
    ACLPermissionType,
    ResourcePattern,
    ResourceType,
    UserScramCredentialUpsertion,
)
from kafka.errors import KafkaError

from schemas.access import OPERATOR, Rule, principals, rules
from services.runtime.cluster import check_trust, connection, password_of, username_of
from services.runtime.errors import NotYet, UserError
from services.runtime.settings import RunSettings

_OPERATIONS = {
    "read": ACLOperation.READ,
    "write": ACLOperation.WRITE,
    "create": ACLOperation.CREATE,
    "describe": ACLOperation.DESCRIBE,
}
_KINDS = {"topic": ResourceType.TOPIC, "group": ResourceType.GROUP}


def grant(settings: RunSettings, plain: str = "") -> int:
    """Make or renew every principal's SCRAM password and its rules; returns how many rules there are.

    As often as one likes: rules that are there stay. It takes a right that no rule gives, to alter the cluster: either
    the operator was given it by whoever owns the cluster, or `plain` are the addresses of a listener on which that is
    everybody's (a cluster that has no users yet). Raises UserError when the cluster refuses, or a secret cannot be
    read.
    """
    kafka = settings.kafka
    if "{service}" not in kafka.username or not kafka.mechanism.startswith("SCRAM"):
        raise UserError(
            "users can only be made for SCRAM with one user per service",
            f"kafka.mechanism = {kafka.mechanism!r}, kafka.username = {kafka.username!r}",
            'set kafka.mechanism = "SCRAM-SHA-512", kafka.username = "rollstream-{service}" and a password_file with '
            "{service} in its path",
        )
    found = rules(settings.run_id)
    if not plain:
        check_trust(kafka, OPERATOR)
    try:
        options = {"bootstrap_servers": plain.split(",")} if plain else connection(kafka, OPERATOR)
        admin = KafkaAdminClient(**options, bootstrap_timeout_ms=15_000)
    except KafkaError as e:
        raise NotYet(f"no broker answers the operator: {e}", plain or kafka.bootstrap, "check its login") from e
    try:
        users = [
            UserScramCredentialUpsertion(username_of(kafka, name), kafka.mechanism, password_of(kafka, name))
            for name in principals()
        ]
        refused = {name: error for name, error in admin.alter_user_scram_credentials(users).items() if error}
        result = admin.create_acls([_acl(kafka.username, rule) for rule in found])
    except KafkaError as e:
        raise UserError(f"the cluster refused: {e}", kafka.bootstrap, "give the operator its rights") from e
    finally:
        admin.close()
    if refused or result["failed"]:
        what = f"{next(iter(refused.items()))}" if refused else f"{result['failed'][0]}"
        raise UserError(f"the cluster refused a user or a rule: {what}", kafka.bootstrap, "see the broker's log")
    return len(found)


def _acl(username: str, rule: Rule) -> ACL:
    return ACL(
        principal=f"User:{username.replace('{service}', rule.principal)}",
        host="*",
        operation=_OPERATIONS[rule.operation],
        permission_type=ACLPermissionType.ALLOW,
        resource_pattern=ResourcePattern(_KINDS[rule.kind], rule.name),
    )
