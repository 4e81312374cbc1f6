"""Control's operations over HTTP, in process, over a group in memory."""

from __future__ import annotations

from typing import Any

import httpx
from fastapi import FastAPI

from services.control.http.api.operations import operations_routes
from shared.service.http import install_problems
from tests.unit.control.groups_world import groups_over
from tests.unit.control.operators_world import OperatorsWorld

MOVE: dict[str, Any] = {"kind": "move", "stream": 0, "to": "b"}
DRAIN: dict[str, Any] = {"kind": "drain", "member": "a"}
REBALANCE: dict[str, Any] = {"kind": "rebalance"}


class Desk(OperatorsWorld):
    """Control's face over a group of 5 streams and two members."""

    def __init__(self) -> None:
        super().__init__(5, "ab")
        self.http = self._face()

    def restart(self) -> None:
        """Control begins anew, with what ZooKeeper keeps."""
        self.operations = self.control()
        self.http = self._face()

    def _face(self) -> httpx.AsyncClient:
        app = FastAPI()
        install_problems(app)
        app.include_router(
            operations_routes(self.operations, groups_over(self.view, self.operations, self.znodes))
        )
        return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://control")

    async def post(self, *, key: str = "", **body: Any) -> httpx.Response:
        """The answer to the operation."""
        headers = {"Idempotency-Key": key} if key else {}
        return await self.http.post("/operations", json=body, headers=headers)

    async def cancel(self, operation: dict[str, Any], reason: str = "") -> httpx.Response:
        """The answer to DELETE."""
        return await self.http.delete(f"/operations/{operation['id']}", params={"reason": reason})

    async def listed(self) -> list[dict[str, Any]]:
        """The operations, newest first."""
        rows: list[dict[str, Any]] = (await self.http.get("/operations")).json()["operations"]
        return rows

    async def get(self, operation: dict[str, Any]) -> dict[str, Any]:
        """The operation as it is now."""
        answer: dict[str, Any] = (await self.http.get(f"/operations/{operation['id']}")).json()
        return answer
