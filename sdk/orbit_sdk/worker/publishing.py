"""How a running attempt submits children."""

from __future__ import annotations

import asyncio
import threading

from orbit_sdk.client import OrbitClient
from orbit_sdk.credentials import Credentials
from orbit_sdk.models.tasks import Accepted, SubmitTask

PUBLISH_SECONDS = 30.0  # how long a submit whose outcome is not known is repeated; its key makes that safe


class ChildPublisher:
    """A client that is made with the first child."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials
        self._client: OrbitClient | None = None
        self._lock = threading.Lock()

    def publish(self, key: str, task: SubmitTask) -> Accepted:
        with self._lock:
            if self._client is None:
                self._client = OrbitClient.from_credentials(self._credentials)
        return self._client.submit_task_until_known(key, task, deadline=PUBLISH_SECONDS)

    async def apublish(self, key: str, task: SubmitTask) -> Accepted:
        return await asyncio.to_thread(self.publish, key, task)

    def use(self, credentials: Credentials) -> None:
        """Go on with a rotated token."""
        with self._lock:
            client, self._client, self._credentials = self._client, None, credentials
        if client is not None:
            client.close()

    def close(self) -> None:
        self.use(self._credentials)
