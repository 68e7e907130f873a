"""Requests straight onto a socket, for what no client would send: retries, corrupt batches, old versions, noise."""

from __future__ import annotations

import socket
import struct
import time
from typing import Any

from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse
from kafka.protocol.producer import InitProducerIdRequest, ProduceRequest
from kafka.record.default_records import DefaultRecordBatchBuilder


class RawClient:
    """One connection; `ask` sends a kafka-python message at its version and decodes the answer."""

    def __init__(self, bootstrap: str, timeout: float = 15.0) -> None:
        host, _, port = bootstrap.split(",")[0].rpartition(":")
        self.socket = socket.create_connection((host.strip("[]"), int(port)), timeout=timeout)
        self._correlation = 0

    def __enter__(self) -> RawClient:
        return self

    def __exit__(self, *exc: object) -> None:
        self.socket.close()

    def send(self, request: Any, version: int) -> None:
        self._correlation += 1
        request.API_VERSION = version
        request.with_header(correlation_id=self._correlation, client_id="raw")
        self.socket.sendall(request.encode(header=True, framed=True))

    def receive(self) -> bytes:
        """The next frame without its length; EOFError when the broker closed the connection."""
        return self._exactly(struct.unpack(">i", self._exactly(4))[0])

    def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            try:
                part = self.socket.recv(count - len(data))
            except ConnectionResetError:
                part = b""
            if not part:
                raise EOFError("the broker closed the connection")
            data += part
        return data

    def ask(self, request: Any, version: int) -> Any:
        self.send(request, version)
        frame = self.receive()
        if isinstance(request, ApiVersionsRequest):
            return ApiVersionsResponse.decode(frame, version=version, header=True)
        return request.header.get_response_class().decode(frame, version=version, header=True)

    def produce(self, topic: str, records: bytes, partition: int = 0, acks: int = -1) -> Any:
        """Produce one partition's record bytes; returns the partition's answer."""
        data = ProduceRequest.TopicProduceData
        request = ProduceRequest(
            transactional_id=None,
            acks=acks,
            timeout_ms=5000,
            topic_data=[data(name=topic, partition_data=[data.PartitionProduceData(index=partition, records=records)])],
        )
        return self.ask(request, 8).responses[0].partition_responses[0]

    def producer_id(self) -> int:
        answer = self.ask(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000), 1)
        assert answer.error_code == 0
        return int(answer.producer_id)


def batch(
    values: list[bytes],
    producer: tuple[int, int, int] = (-1, -1, -1),
    keys: list[bytes | None] | None = None,
    timestamps: list[int] | None = None,
    codec: int = 0,
) -> bytes:
    """One encoded batch, by default of now (older ones fall to retention); `producer` is (id, epoch, sequence)."""
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=codec,
        is_transactional=False,
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=producer[2],
        batch_size=1 << 24,
    )
    for number, value in enumerate(values):
        stamp = timestamps[number] if timestamps else int(time.time() * 1000)
        builder.append(number, stamp, keys[number] if keys else None, value, [])
    return bytes(builder.build())
