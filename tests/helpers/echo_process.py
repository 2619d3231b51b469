"""A module for test_subprocesses: answers each message, and does odd things when asked."""

import os
import time
from collections.abc import Callable, Iterator
from typing import Any

from fedro.common.subprocesses import serve


def main(messages: Iterator[dict[str, Any]], send: Callable[[dict[str, Any]], None]) -> None:
    """Answer every message with the same."""
    for message in messages:
        if message.get("do") == "die":
            os._exit(3)
        if message.get("do") == "sleep":
            time.sleep(60)
        print("printed by a user's model")
        send({"echo": message, "variable": os.environ.get("FEDRO_TEST")})


if __name__ == "__main__":
    serve(main)
