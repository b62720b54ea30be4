"""The fixtures of the suite."""
