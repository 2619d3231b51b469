"""Write files atomically: at any time a file is complete, in its old or in its new version.

All files that the package writes go through `write_atomically` or, where a library wants a path to
write to, through `atomic_path`. Both write to a temporary file in the same folder and rename it at
the end. If anything goes wrong, they delete the temporary file and leave the old file as it was.
"""

import contextlib
import errno
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

TEMPORARY_SUFFIX = ".tmp"


class CannotWriteError(OSError):
    """A file that could not be written; the message names the file and the reason."""

    def __str__(self) -> str:
        return f"cannot write {self.filename}: {self.strerror}"


class NewRootFolderError(CannotWriteError):
    """A path that would need a new folder directly below the root of the file system."""


def write_atomically(
    path: Path,
    data: bytes | str,
    *,
    durable: bool = False,
    make_folder: bool = True,
    fixed_name: bool = False,
) -> Path:
    """Write a file; on failure the old file, if any, is unchanged.

    Args:
        path: The file to write.
        data: Its new content. Text is written as UTF-8; what UTF-8 cannot hold becomes "?".
        durable: Wait until the file and its name are on the disk, so that a power cut right after
            this call cannot undo it.
        make_folder: Create the file's folder if it does not exist.
        fixed_name: See `atomic_path`.

    Returns:
        The path.

    Raises:
        CannotWriteError: The system refused; `errno` and `strerror` say why.
    """
    content = data.encode("utf-8", "replace") if isinstance(data, str) else data
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    with (
        atomic_path(
            path, durable=durable, make_folder=make_folder, fixed_name=fixed_name
        ) as temporary,
        opened(temporary, flags) as file,
    ):
        write_all(file, content)
    return path


@contextlib.contextmanager
def atomic_path(
    path: Path, *, durable: bool = False, make_folder: bool = True, fixed_name: bool = False
) -> Iterator[Path]:
    """Yield a temporary path; what is there at the end of the block is renamed to `path`.

    The block creates a file or a folder at the temporary path. A folder can only take the place of
    an empty one.

    Args:
        path: Where the result goes.
        durable: Wait until the result and its name are on the disk.
        make_folder: Create the folder above `path` if it does not exist.
        fixed_name: Use the temporary name `temporary_name(path.name)`, so that the leftovers of a
            killed process can be found and cleared. Only for folders that nobody else writes to.
            By default, each call chooses a new hidden name.

    Raises:
        CannotWriteError: The system refused; `errno` and `strerror` say why.
    """
    hidden = temporary_name(f".{secrets.token_hex(8)}")
    temporary = path.with_name(temporary_name(path.name) if fixed_name else hidden)
    try:
        if make_folder:
            check_no_new_root_folder(path.parent, path)
            path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        if durable:
            _sync_content(temporary)
        os.replace(temporary, path)
    except BaseException as error:
        _delete(temporary)
        if isinstance(error, OSError) and not isinstance(error, NewRootFolderError):
            reason = error.strerror or str(error)
            raise CannotWriteError(error.errno or 0, reason, str(path)) from error
        raise
    if durable:
        sync_folder(path.parent)


def temporary_name(name: str) -> str:
    """Return the name under which a file is written before it is complete."""
    return name + TEMPORARY_SUFFIX


def check_html_name(path: Path, instead: str = "") -> None:
    """Raise unless the name of a page ends in .html.

    Args:
        path: Where the page goes.
        instead: How to get other formats, for the message.
    """
    if path.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"cannot write a page to {path}: the name must end in .html{instead}")


def check_no_new_root_folder(folder: Path, path: Path) -> None:
    """Raise if creating a folder and those above it would create one directly below ``/``.

    Such a path is nearly always misspelt, and a user who may write there would not notice.

    Args:
        folder: The folder to create, if it does not exist.
        path: What is to be written, for the message.

    Raises:
        NewRootFolderError: The first folder of the path does not exist.
    """
    parts = Path(os.path.abspath(folder)).parts
    top = Path(*parts[:2])
    if len(parts) > 1 and not top.exists():
        reason = (
            f"this would create the folder {top} at the root of the file system; check the path, "
            f"or create that folder first"
        )
        raise NewRootFolderError(errno.ENOENT, reason, str(path))


def make_folder_durably(path: Path) -> None:
    """Create a folder and those above it, and wait until their names are on the disk.

    Raises:
        NewRootFolderError: One of them would be a new folder directly below the root.
    """
    check_no_new_root_folder(path, path)
    if not path.is_dir():
        make_folder_durably(path.parent)
        path.mkdir(exist_ok=True)
        sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Wait until the names in a folder are on the disk, if the file system supports that."""
    with opened(path, os.O_RDONLY | os.O_DIRECTORY) as folder:
        try:
            os.fsync(folder)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise


@contextlib.contextmanager
def opened(path: Path, flags: int) -> Iterator[int]:
    """Open a file with the flags of `os.open`, yield its descriptor, and close it."""
    file = os.open(path, flags, 0o666)
    try:
        yield file
    finally:
        os.close(file)


def write_all(file: int, data: bytes) -> None:
    """Write every byte to a descriptor, or raise."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(file, rest) :]


def _sync_content(path: Path) -> None:
    """Wait until a file, or a folder with all its files, is on the disk."""
    if path.is_dir():
        for inside in path.iterdir():
            _sync_content(inside)
        sync_folder(path)
        return
    with opened(path, os.O_RDONLY) as file:
        os.fsync(file)


def _delete(path: Path) -> None:
    with contextlib.suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
