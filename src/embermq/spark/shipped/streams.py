"""One object read by ranges: little after a jump, more and more where reading goes on, a bounded piece ahead.

A scan asks for windows of up to 1 MiB one after the other. Over a network each would be a round trip, so pieces of up
to 4 MiB are fetched, the next one while the last is being worked on. One thread at a time.
"""

from concurrent.futures import Future, ThreadPoolExecutor

import pyarrow as pa

from embermq.spark.shipped.places import Place

FIRST_BYTES = 64 << 10
PIECE_BYTES = 4 << 20


class ObjectStream:
    """Bytes of one object. Nothing is fetched ahead at or behind `ahead_end`."""

    def __init__(self, place: Place, name: str, size: int, ahead_end: int) -> None:
        self._place, self._name, self._size = place, name, size
        self._ahead_end = min(ahead_end, size)
        self._file: pa.NativeFile = None
        self._start, self._data = 0, b""  # what was fetched last
        self._piece_bytes = FIRST_BYTES
        self._next: Future[bytes] | None = None
        self._next_start = -1
        self._pool: ThreadPoolExecutor | None = None
        self.bytes_read = 0

    def read(self, count: int, at: int) -> bytes:
        """Up to `count` bytes; fewer only at the end. FileNotFoundError if the object is gone."""
        count = max(0, min(count, self._size - at))
        end = self._start + len(self._data)
        if self._start <= at and at + count <= end:
            return self._data[at - self._start : at - self._start + count]
        goes_on = self._data != b"" and self._start <= at <= end
        self._piece_bytes = min(2 * self._piece_bytes, PIECE_BYTES) if goes_on else FIRST_BYTES
        kept = self._data[at - self._start :] if goes_on else b""
        fetch_at = at + len(kept)
        piece_end = max(at + count, min(fetch_at + self._piece_bytes, self._ahead_end))
        self._data = kept + self._fetch(fetch_at, piece_end)
        self._start = at
        if goes_on:
            self._fetch_ahead()
        return self._data[:count]

    def close(self) -> None:
        """Give back what is held; the stream can be read again."""
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
        if self._file is not None:
            self._file.close()
        self._file = self._pool = self._next = None
        self._data, self._next_start = b"", -1

    def _fetch(self, start: int, end: int) -> bytes:
        if self._next is not None:
            ahead, self._next = self._next, None
            if self._next_start == start:
                data = ahead.result()
                return data + self._get(start + len(data), end) if start + len(data) < end else data
            if not ahead.cancel():
                ahead.exception()  # One reader of the object at a time.
        return self._get(start, end)

    def _fetch_ahead(self) -> None:
        start = self._start + len(self._data)
        end = min(start + self._piece_bytes, self._ahead_end)
        if start >= end:
            return
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, thread_name_prefix="embermq-ahead")
        self._next_start, self._next = start, self._pool.submit(self._get, start, end)

    def open(self) -> None:
        """FileNotFoundError if the object is not there. Reading opens it as well."""
        if self._file is None:
            self._file = self._place.open(self._name)

    def _get(self, start: int, end: int) -> bytes:
        self.open()
        data = self._place.read_at(self._file, self._name, end - start, start)
        self.bytes_read += len(data)
        return data
