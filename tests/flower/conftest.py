"""Tests of what needs Flower."""

import importlib.util

if importlib.util.find_spec("flwr") is None:
    collect_ignore_glob = ["*"]
