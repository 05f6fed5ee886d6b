"""The fixtures of the package's tests, for the tests of extensions."""

pytest_plugins = ["tests.conftest"]
