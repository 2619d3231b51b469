"""What the user should know and need not act on: through ``logging``, once."""

import logging
from functools import cache

LOG = logging.getLogger("fedro.data")


@cache
def say_once(message: str) -> None:
    """A line in the log; the same line is not said again in this process."""
    LOG.warning(message)
