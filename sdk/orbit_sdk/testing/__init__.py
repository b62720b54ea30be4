"""For tests of programs that use Orbit: handlers without a server, and an Orbit in memory that can lose its answers."""

from orbit_sdk.testing.handlers import HandlerRun, run_handler
from orbit_sdk.testing.memory import InMemoryOrbit

__all__ = ["HandlerRun", "InMemoryOrbit", "run_handler"]
