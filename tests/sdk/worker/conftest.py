"""Workers beside a scripted node."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from orbit_sdk import Worker
from tests.sdk.fake_node import QUEUE, FakeNode, running_node


@pytest.fixture
def node() -> Iterator[FakeNode]:
    with running_node() as peer:
        yield peer


@pytest.fixture
def make_worker(node: FakeNode) -> Iterator[Callable[..., Worker]]:
    """A worker of the node; what a test started is drained afterwards."""
    made: list[Worker] = []

    def make(**options: Any) -> Worker:
        options = {"queues": [QUEUE], "concurrency": 4, "name": "tester", "drain_timeout": 5.0, **options}
        worker = Worker(node.url, "orbit_test_token", **options)
        made.append(worker)
        return worker

    yield make
    for worker in made:
        if worker._thread is not None:
            worker.stop()
            worker.stop()
            worker._thread.join(10)
