"""Every metric of the loop, one documented entry each; labels are bounded (topics, phases, reasons)."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, ProcessCollector, generate_latest

PHASES = ("poll", "handle", "tick", "wait", "commit")
"""Where the poll thread's second goes: waiting for records, the core, deadlines, backpressure, commits."""


class Metrics:
    """Metrics of one service process, on a registry of its own so that several can live in one test process."""

    def __init__(self, service: str) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        label = {"service": service}

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(name, text, ("service", *labels), registry=self.registry)

        def gauge(name: str, text: str) -> Gauge:
            return Gauge(name, text, ("service",), registry=self.registry).labels(**label)

        self._label = label
        self._consumed = counter("rlvr_records_consumed", "records handed to the core", "topic")
        self._produced = counter("rlvr_records_produced", "records given to the producer", "topic")
        self._invalid = counter("rlvr_records_invalid", "records that broke the contract", "reason")
        self._expired = counter("rlvr_records_expired", "records that retention removed before they were read", "topic")
        self._loop = counter("rlvr_loop_seconds", "seconds of the poll thread by phase", "phase")
        self._phases = {p: self._loop.labels(**label, phase=p) for p in PHASES}
        self._rebalances = counter("rlvr_rebalances", "assignments that changed what this process owns").labels(**label)
        self._discarded = counter("rlvr_jobs_discarded", "results of partitions lost meanwhile").labels(**label)
        self._unavailable = counter("rlvr_store_unavailable", "calls that no object store answered").labels(**label)
        self.lag = gauge("rlvr_consumer_lag_seconds", "now - timestamp of the record handled last; 0 at the end")
        self.commit_age = gauge("rlvr_commit_age_seconds", "seconds since finished work was last committed")
        self.inflight_records = gauge("rlvr_inflight_records", "delivered records that are not finished")
        self.inflight_bytes = gauge("rlvr_inflight_bytes", "bytes of the jobs that are queued or running")
        self.inflight_jobs = gauge("rlvr_inflight_jobs", "jobs that are queued or running")
        self.unacknowledged = gauge("rlvr_unacknowledged_records", "outputs that the broker has not acknowledged")
        self.assigned = gauge("rlvr_partitions_assigned", "partitions that this process owns")
        self.stalled = gauge("rlvr_partition_stalled", "partitions with unread records that did not advance")
        self.ready = gauge("rlvr_ready", "1: caught up, owns its share and not draining")
        self.finished = gauge("rlvr_finished", "1: the service's work is over, it only answers health (`up --stay`)")
        self._by_topic: dict[tuple[str, str], Counter] = {}

    def _topic(self, family: Counter, name: str, topic: str) -> Counter:
        found = self._by_topic.get((name, topic))
        if found is None:
            found = self._by_topic[name, topic] = family.labels(**self._label, topic=topic)
        return found

    def consumed(self, topic: str) -> None:
        self._topic(self._consumed, "in", topic).inc()

    def produced(self, topic: str, count: int = 1) -> None:
        self._topic(self._produced, "out", topic).inc(count)

    def invalid(self, reason: str) -> None:
        self._invalid.labels(**self._label, reason=reason).inc()

    def expired(self, topic: str, count: int) -> None:
        self._expired.labels(**self._label, topic=topic).inc(count)

    def phase(self, name: str, seconds: float) -> None:
        self._phases[name].inc(seconds)

    def store_unavailable(self) -> None:
        self._unavailable.inc()

    def rebalanced(self) -> None:
        self._rebalances.inc()

    def discarded(self) -> None:
        self._discarded.inc()

    def text(self) -> bytes:
        """The exposition format that Prometheus scrapes."""
        return generate_latest(self.registry)
