"""For every Python test: the contract between host and plugin is watched, and a violation ends the test.

Tests compare with eager PyTorch bit for bit where they can, so they run on the reference backend; set LAZYT_BACKEND
to run them on another. tests/backends holds what is asked of onednn and cuda."""

import os

import pytest

os.environ.setdefault("LAZYT_LAYERS", "validate:abort")
os.environ.setdefault("LAZYT_BACKEND", "ts")


def pytest_collection_modifyitems(items):
    if os.environ.get("LAZYT_EAGER") == "1":
        for item in items:
            if item.get_closest_marker("pending"):
                item.add_marker(pytest.mark.skip(reason="LAZYT_EAGER=1: no operator is pending"))
