"""The bare baseline of the producer: the minimum of HTTP into Kafka.

A plain ASGI callable that parses the key of each fragment and sends with aiokafka as in its documentation,
with acks=all and large batches. It has no limits, validation, time-outs or results per fragment.
"""

from __future__ import annotations

import sys
import zlib
from typing import Any

import msgspec
import uvicorn
from aiokafka import AIOKafkaProducer


class Keyed(msgspec.Struct):
    """The only field that it reads."""

    key: str


_decode = msgspec.json.Decoder(Keyed).decode
_slice = msgspec.json.Decoder(list[msgspec.Raw]).decode


async def serve(kafka: str, port: int, topics: list[str]) -> None:
    """Serves on 127.0.0.1:port until the process ends."""
    producer = AIOKafkaProducer(
        bootstrap_servers=kafka, acks="all", linger_ms=0, max_batch_size=512 * 1024, request_timeout_ms=20_000
    )
    await producer.start()
    await producer.client.set_topics(topics)

    async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["method"] == "GET":
            await send({"type": "http.response.start", "status": 204, "headers": []})
            await send({"type": "http.response.body"})
            return
        body = b""
        more = True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        futures = []
        for value in [body] if body.startswith(b"{") else map(bytes, _slice(body)):
            key = _decode(value).key.encode()
            topic = topics[zlib.crc32(key) % len(topics)]
            futures.append(await producer.send(topic, value, key, partition=0))
        for future in futures:
            await future
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"{}"})

    config = uvicorn.Config(
        app,
        host="127.0.0.1",
        port=port,
        http="httptools",
        loop="uvloop",
        lifespan="off",
        access_log=False,
        log_level="warning",
    )
    await uvicorn.Server(config).serve()


if __name__ == "__main__":
    import uvloop

    uvloop.run(serve(sys.argv[1], int(sys.argv[2]), sys.argv[3].split(",")))
