"""The tables of settings that every service reads, whatever it does: how it reaches others and how its loop lives."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

LARGEST = 2**50
"""No count, size in bytes or time in seconds of a run is larger."""


class Section(BaseModel):
    """A table of the TOML file; an unknown key is an error, since a misspelt setting would be silently ignored."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @model_validator(mode="after")
    def _sane(self) -> Self:
        for name, value in self:
            if isinstance(value, int | float) and name != "seed" and abs(value) > LARGEST:
                raise ValueError(f"{name} = {value:g} is more than any run can mean")
        return self


class Kafka(Section):
    """Where the topics live. `bootstrap` empty: the laptop stack starts the embedded broker and fills it in."""

    bootstrap: str = ""
    partitions: int = Field(4, ge=1, le=1024, description="count of every grouped topic")
    replication: int = Field(1, ge=1, le=32_767)
    min_in_sync: int = Field(0, ge=0, description="copies that an acknowledgement promises; 0: all but one")
    compression: Literal["none", "zstd", "lz4"] = "zstd"
    session_timeout_ms: int = Field(6_000, ge=1_000, le=3_600_000)
    tls: bool = Field(False, description="speak TLS; without ca_file the system's authorities are trusted")
    ca_file: str = ""
    cert_file: str = Field("", description="this client's certificate, with key_file, where the cluster asks for one")
    key_file: str = ""
    check_hostname: bool = True
    mechanism: Literal["", "SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN"] = Field("", description="of SASL; empty: none")
    username: str = Field("", description="{service} in it stands for the service's name: one principal for each")
    password: str = Field("", repr=False, description="better: password_file, or ROLLSTREAM_KAFKA__PASSWORD")
    password_file: str = Field("", description="may contain {service}, as may cert_file and key_file")

    @model_validator(mode="after")
    def _complete(self) -> Kafka:
        if self.mechanism and not (self.username and (self.password or self.password_file)):
            raise ValueError(
                f"mechanism {self.mechanism} needs username, and password_file or ROLLSTREAM_KAFKA__PASSWORD"
            )
        if self.mechanism == "PLAIN" and not self.tls:
            raise ValueError("mechanism PLAIN sends the password as it is: it needs tls = true")
        if bool(self.cert_file) != bool(self.key_file):
            raise ValueError("cert_file and key_file belong together")
        if self.min_in_sync > self.replication:
            raise ValueError(f"min_in_sync = {self.min_in_sync} of {self.replication} copies: nothing could be written")
        return self

    @property
    def in_sync(self) -> int:
        """Copies that hold a record once it is acknowledged; it survives the loss of all of them but one."""
        return self.min_in_sync or max(1, self.replication - 1)


class Runtime(Section):
    """The loop under every service; the defaults suit one machine as well as a cluster."""

    commit_s: float = Field(0.5, gt=0, description="offsets are committed at most this often")
    tick_s: float = Field(0.5, gt=0, description="how often deadlines are looked at")
    window_records: int = Field(50_000, ge=1, description="a partition is paused when this many stand above one record")
    drain_s: float = Field(10.0, ge=0, description="budget of running jobs after SIGTERM")
    revoke_s: float = Field(3.0, ge=0, description="budget of running jobs before partitions are let go")
    linger_ms: int = Field(0, ge=0, le=5, description="0 favours latency, 5 favours throughput of many small records")
    unacknowledged_records: int = Field(20_000, ge=1)
    unacknowledged_bytes: int = Field(64 * 1024 * 1024, ge=1024)
    dead_letters_in_a_row: int = Field(20, ge=0, description="more than this many stop the service")
    dead_letter_ratio: float = Field(0.1, ge=0, le=1)
    crash_tries: int = Field(1, ge=1, description="crashes on account of one record before it is dead-lettered")
    death_tries: int = Field(3, ge=1, description="deaths while one candidate was checked before it is `unknown`")
    stuck_s: float = Field(120.0, gt=0, description="liveness fails when the loop has not turned for this long")
    start_s: float = Field(1800.0, gt=0, description="the same for one step of a start, such as reading a checkpoint")
    prepared_s: float = Field(21_600.0, gt=0, description="how long a service waits for the run to be prepared")

    @property
    def grace_s(self) -> float:
        """Seconds after SIGTERM within which a process has ended, by its own watchdog at the latest.

        The turn under way (`revoke_s` in a rebalance), the drain, then flush, commit, leave and jails: with the
        defaults 33 s, where 2 s are usual. A supervisor's grace period belongs above it.
        """
        return self.revoke_s + self.drain_s + 20.0


class Store(Section):
    """Object storage: `file:///path`, `file:folder` (beside the file that says so), or `s3://bucket/prefix`, which
    takes endpoint and keys."""

    url: str = ""
    endpoint: str = ""
    access_key: str = Field("", description="{service} in it stands for the service's name: one login for each")
    secret_key: str = Field("", repr=False, description="better: secret_key_file, or ROLLSTREAM_STORE__SECRET_KEY")
    secret_key_file: str = Field("", description="may contain {service}")
    region: str = "us-east-1"
    secure: bool = True
