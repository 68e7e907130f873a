"""Protects the line between candidate and infrastructure: the whole table, as a pure function over recorded facts."""

from dataclasses import replace

import pytest

from services.runtime.jail.limits import MIB, Usage
from services.verifier.attribution import Facts, attribute

GOOD = Facts(wanted=5, answered=5, wall_s=0.02, memory_limit=256 * MIB, pressure=0.2)
LATE = replace(GOOD, ending="deadline", answered=2, wall_s=10.0)


@pytest.mark.parametrize(("facts", "expected"), [
    (GOOD, ("pass", "ok")),
    (replace(GOOD, fault="no_start", booted=False), ("infra", "no_start")),
    (replace(GOOD, booted=False), ("infra", "no_boot")),
    (replace(GOOD, fault="no_boot", booted=False, usage=Usage(oom_kills=1)), ("infra", "no_boot")),
    (replace(GOOD, ready=False, answered=0, import_error="SyntaxError"), ("fail", "syntax_error")),
    (replace(GOOD, ready=False, answered=0, import_error="NameError"), ("fail", "import_error")),
    (replace(GOOD, ready=False, answered=0, ending="eof"), ("fail", "no_ready")),
    (replace(GOOD, answered=3, ending="eof"), ("fail", "crash")),
    # The host's killer was about, but nothing of this jail was killed, or nothing says so.
    (replace(GOOD, answered=3, ending="eof", host_oom=True), ("fail", "crash")),
    (replace(GOOD, answered=3, ending="eof", host_oom=True, usage=Usage(oom_kills=0)), ("fail", "crash")),
    (replace(GOOD, answered=3, ending="eof", cpu_limit=3, usage=Usage(cpu_s=2.99)), ("fail", "cpu_limit")),
    (replace(GOOD, answered=3), ("fail", "crash")),
    (replace(GOOD, usage=Usage(oom_kills=1, memory_bytes=256 * MIB)), ("fail", "oom")),
    (replace(GOOD, usage=Usage(oom_kills=1)), ("fail", "oom")),
    (replace(GOOD, usage=Usage(oom_kills=1, memory_bytes=255 * MIB), host_oom=True), ("fail", "oom")),
    (replace(GOOD, usage=Usage(oom_kills=1, memory_bytes=20 * MIB), host_oom=True), ("infra", "host_oom")),
    (replace(GOOD, usage=Usage(pids_denied=3)), ("fail", "processes")),
    (replace(GOOD, ending="log_flood"), ("fail", "output_flood")),
    (replace(GOOD, ending="reply_flood"), ("fail", "output_flood")),
    (replace(GOOD, ending="protocol"), ("fail", "protocol")),
    (replace(GOOD, ending="lingering"), ("fail", "lingering")),
    (replace(GOOD, ending="limit", answered=1), ("fail", "cpu_limit")),
    (replace(GOOD, ending="stopped", answered=1, rejection="wrong_value"), ("fail", "wrong_value")),
    (replace(GOOD, ending="stopped", answered=1, rejection="unencodable"), ("fail", "unencodable")),
    # Deadlines: spinning, asleep, starved, and what cannot be measured.
    (replace(LATE, usage=Usage(cpu_s=9.5)), ("fail", "timeout")),
    (replace(LATE, usage=Usage(cpu_s=5.0, host_wait_s=4.0), pressure=0.95), ("fail", "timeout")),
    (replace(LATE, usage=Usage(cpu_s=0.01, host_wait_s=0.0)), ("fail", "timeout")),
    (replace(LATE, usage=Usage(cpu_s=0.01, host_wait_s=0.0), pressure=0.95), ("fail", "timeout")),
    (replace(LATE, usage=Usage(cpu_s=1.0, host_wait_s=8.0), pressure=0.95), ("infra", "host_starved")),
    (replace(LATE, usage=Usage(cpu_s=1.0, host_wait_s=8.0), pressure=0.1), ("fail", "timeout")),
    (replace(LATE, usage=Usage(cpu_s=1.0), pressure=0.95), ("fail", "timeout")),
    (replace(LATE, usage=Usage(), pressure=None), ("fail", "timeout")),
])  # fmt: skip
def test_the_table(facts: Facts, expected: tuple[str, str]) -> None:
    assert attribute(facts) == expected
