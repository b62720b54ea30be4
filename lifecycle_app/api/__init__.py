"""The edges of the lifecycle over HTTP (design 4.8)."""
