"""``python -m fedro`` is the command line."""

from fedro.cli import main

main()
