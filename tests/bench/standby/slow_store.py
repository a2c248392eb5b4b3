"""A store that is far away: a proxy that passes requests on later."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

CHUNK_BYTES = 1 << 18


@contextmanager
def delayed(url: str, delay_s: float) -> Iterator[str]:
    """Serve the HTTP server at ``url`` on a free port, each request ``delay_s`` later; yields the URL."""
    place = urlsplit(url)
    assert place.hostname is not None
    assert place.port is not None
    proxy = _Proxy(place.hostname, place.port, delay_s)
    thread = threading.Thread(target=proxy.run)
    thread.start()
    try:
        proxy.is_ready.wait(10)
        yield f"http://127.0.0.1:{proxy.port}"
    finally:
        proxy.stop()
        thread.join()


class _Proxy:
    """Runs in a thread of its own."""

    def __init__(self, host: str, port: int, delay_s: float) -> None:
        self.port = 0
        self.is_ready = threading.Event()
        self._upstream = (host, port)
        self._delay_s = delay_s
        self._loop: asyncio.AbstractEventLoop | None = None
        self._end: asyncio.Event | None = None

    def run(self) -> None:
        asyncio.run(self._serve())

    def stop(self) -> None:
        assert self._loop is not None
        assert self._end is not None
        self._loop.call_soon_threadsafe(self._end.set)

    async def _serve(self) -> None:
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self.is_ready.set()
        await self._end.wait()
        server.close()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream_reader, upstream_writer = await asyncio.open_connection(*self._upstream)
        # Bytes that arrive together leave together, so a request is late by the delay, whatever its size.
        queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        copies = (
            self._receive(reader, queue),
            self._send_late(queue, upstream_writer),
            self._send(upstream_reader, writer),
        )
        tasks = [asyncio.ensure_future(each) for each in copies]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        writer.close()
        upstream_writer.close()

    async def _receive(self, reader: asyncio.StreamReader, queue: "asyncio.Queue[tuple[float, bytes]]") -> None:
        clock = asyncio.get_running_loop().time
        while data := await reader.read(CHUNK_BYTES):
            queue.put_nowait((clock() + self._delay_s, data))

    async def _send_late(self, queue: "asyncio.Queue[tuple[float, bytes]]", writer: asyncio.StreamWriter) -> None:
        clock = asyncio.get_running_loop().time
        while True:
            due_s, data = await queue.get()
            await asyncio.sleep(max(0.0, due_s - clock()))
            writer.write(data)
            await writer.drain()

    async def _send(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(CHUNK_BYTES):
            writer.write(data)
            await writer.drain()
