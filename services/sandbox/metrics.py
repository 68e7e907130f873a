"""Every metric of the sandbox service's own, one documented entry each."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Gauge

from services.sandbox.pool import ENDS, Pool


def register(pool: Pool, registry: CollectorRegistry) -> None:
    """Gauges that read the pool when they are scraped."""
    jails = Gauge("rlvr_sandbox_jails", "jails of workspaces by how they came and went", ("what",), registry=registry)
    for what in ENDS:
        jails.labels(what).set_function(lambda what=what: pool.counts[what])  # type: ignore[misc]  # bound per loop
    requests = Gauge(
        "rlvr_sandbox_network", "connections of jails with hosts by what their proxy did", ("what",), registry=registry
    )
    for what in ("passed", "refused"):
        requests.labels(what).set_function(lambda what=what: pool.network[what])  # type: ignore[misc]  # bound per loop
    Gauge("rlvr_sandbox_jails_ready", "jails that wait for a workspace", registry=registry).set_function(
        lambda: pool.ready
    )
    Gauge(
        "rlvr_sandbox_slots_retired", "slots out of use until the service starts again", registry=registry
    ).set_function(lambda: pool.retired)
