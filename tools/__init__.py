"""What `make` runs. Only the standard library: these modules work before the virtual environment exists."""
