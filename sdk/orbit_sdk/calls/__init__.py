"""Every verb of the API as a pure function: arguments in, a `Call` out."""
