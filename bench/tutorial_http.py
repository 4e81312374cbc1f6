"""The tutorial's baseline of the producer: HTTP into Kafka as a tutorial would write it.

FastAPI, a pydantic model, and `send_and_wait` for each fragment; aiokafka with its defaults except acks=all;
uvicorn with uvloop, httptools and no access log.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any

import uvicorn
from aiokafka import AIOKafkaProducer
from fastapi import FastAPI, Request
from pydantic import BaseModel, Field

TOPIC = "tutorial"


class Fragment(BaseModel):
    """One fragment as a tutorial's model."""

    key: str = Field(min_length=1, max_length=256)
    end: bool = False
    time: datetime | int | None = None
    id: str | None = Field(default=None, max_length=64)
    data: Any = None


async def one(request: Request, fragment: Fragment) -> dict[str, int]:
    """Sends one fragment to Kafka."""
    await _store(request, fragment)
    return {"accepted": 1}


async def many(request: Request, fragments: list[Fragment]) -> dict[str, int]:
    """Sends fragments to Kafka one after the other."""
    for fragment in fragments:
        await _store(request, fragment)
    return {"accepted": len(fragments)}


async def _store(request: Request, fragment: Fragment) -> None:
    producer: AIOKafkaProducer = request.app.state.producer
    value = fragment.model_dump_json(exclude_unset=True).encode()
    await producer.send_and_wait(TOPIC, value, fragment.key.encode())


def main(kafka: str, port: int) -> None:
    """Serves on 127.0.0.1:port until the process ends."""

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with AIOKafkaProducer(bootstrap_servers=kafka, acks="all") as producer:
            app.state.producer = producer
            yield

    app = FastAPI(lifespan=lifespan)
    app.post("/fragments")(one)
    app.post("/batches")(many)
    uvicorn.run(app, host="127.0.0.1", port=port, access_log=False, log_level="warning")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
