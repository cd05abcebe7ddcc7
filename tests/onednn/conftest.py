"""These tests run on the oneDNN plugin alone (tools/build/run_tests.py starts them with LAZYT_BACKEND=onednn)."""

import os
from pathlib import Path

import pytest


def pytest_collection_modifyitems(items):
    if os.environ.get("LAZYT_BACKEND") == "onednn":
        return
    for item in items:  # of the whole session, other folders included
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.skip(reason="run with LAZYT_BACKEND=onednn"))
