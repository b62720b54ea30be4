"""`python -m orbit_sdk.cli`."""

from orbit_sdk.cli import main

main()
