"""Files for people, written whole or not at all."""

import contextlib
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A path to write to, which takes the file's place in the end; makes the folder if need be."""
    unfinished = path.with_name(f".{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield unfinished
        unfinished.replace(path)
    except OSError as error:
        raise OSError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        with contextlib.suppress(OSError):
            unfinished.unlink(missing_ok=True)


def put(path: Path, text: str) -> Path:
    """Write a text, whole or not at all."""
    with whole_file(path) as unfinished:
        unfinished.write_bytes(text.encode("utf-8", "replace"))
    return path
