"""Stand-ins for the two parties that Orbit does not own, as real processes: the upstream and a storage node.

For tests, the example and trying things out. They share no code with Orbit's side of the wire, so that a mistake in the
codec cannot hide in both.
"""
