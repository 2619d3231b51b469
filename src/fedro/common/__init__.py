"""Helpers for the whole package: registries, random streams, checks, text, files, figures."""
