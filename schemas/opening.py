"""Opens compressed record batches no further than a bound: a few kilobytes can claim, and become, gigabytes."""

from __future__ import annotations

import gzip
import io

MAX_OPENED = 64 * 1024 * 1024
"""Bytes of one opened batch: the largest record fills 8 MiB, and no client of ours batches more than that."""
_MAX_WINDOW = 128 * 1024 * 1024
GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
"""Kafka's numbers of the codecs."""


class TooLarge(ValueError):
    """A batch that would be larger than any of ours."""


def opened(codec: int, raw: bytes, most: int = MAX_OPENED) -> bytes:
    """The uncompressed records. Raises TooLarge, ValueError for another codec, and what the codecs raise."""
    if codec == GZIP:
        with gzip.GzipFile(fileobj=io.BytesIO(raw)) as reader:
            found = reader.read(most + 1)
    elif codec == LZ4:
        import lz4.frame  # type: ignore[import-untyped]  # it has no stubs

        found = lz4.frame.LZ4FrameDecompressor().decompress(raw, max_length=most + 1)
    elif codec == ZSTD:
        import zstandard

        unpack = zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW)
        with unpack.stream_reader(io.BytesIO(raw), read_across_frames=True) as reader:
            found = reader.read(most + 1)
    else:
        raise ValueError(f"batches of codec {codec} are not opened here")
    if len(found) > most:
        raise TooLarge(f"{len(raw)} bytes hold more than {most}")
    return bytes(found)
