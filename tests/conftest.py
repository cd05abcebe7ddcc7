"""For every Python test: the contract between host and plugin is watched, and a violation ends the test."""

import os

os.environ.setdefault("LAZYT_LAYERS", "validate:abort")
