"""The fixtures of the package's tests, for the tests of benchmarks."""

pytest_plugins = ["tests.conftest"]
