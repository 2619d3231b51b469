"""Run the command line with ``python -m fedro``."""

from fedro.cli import main

main()
