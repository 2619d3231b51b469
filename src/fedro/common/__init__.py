"""Helpers that every room uses: registries, random streams, checks, text, files, figures."""
