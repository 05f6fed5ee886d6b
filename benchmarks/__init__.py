"""Side-by-side timings of the harness itself; see `make bench-build` and `make bench-profile`."""
