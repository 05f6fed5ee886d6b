"""Stores of runs elsewhere, such as ``s3://bucket/runs``: their runs are copied once, and read from the copies."""

from __future__ import annotations

import json
import os
from pathlib import Path, PurePosixPath

from flashcore.errors import CapabilityError, FlashcoreError
from flashcore.model.files import PARTIAL, text_hash, write_atomically
from flashcore.records.lookup import PACKED
from flashcore.records.store import RUN_ID

CACHE, _SEEN = "remote", "seen.json"


def mirrored(url: str, profiles: Path) -> Path:
    """The folder below ``profiles`` with a copy of each run and packed run at the URL of any fsspec file system.

    Only runs that are new, and packed runs that changed, are copied. Copies of removed ones are kept.

    Raises:
        CapabilityError: fsspec, or its package for such URLs, is missing.
        FlashcoreError: the store cannot be read.
    """
    folder = profiles / CACHE / text_hash(url)[:16]
    seen_file = folder / _SEEN
    try:
        import fsspec

        files, root = fsspec.core.url_to_fs(url)
        folder.mkdir(parents=True, exist_ok=True)
        seen = json.loads(seen_file.read_bytes()) if seen_file.is_file() else {}
        for entry in files.ls(root, detail=True):
            path = PurePosixPath(entry["name"])
            is_run = entry["type"] == "directory" and RUN_ID.fullmatch(path.name)
            state = repr(sorted(entry.items()))  # of a packed run; a recorded one does not change
            is_copied = (folder / path.name).exists() and (is_run or seen.get(path.name) == state)
            if is_copied or not (is_run or path.name.endswith(PACKED)):
                continue
            partial = folder / f"{path.name}{PARTIAL}"
            for name in files.find(entry["name"]) if is_run else [entry["name"]]:
                copy = partial.joinpath(*PurePosixPath(name).relative_to(path).parts)
                if ".." in copy.parts[len(partial.parts) :]:
                    raise FlashcoreError(f"{url}: expected files of runs, found {name!r}")
                copy.parent.mkdir(parents=True, exist_ok=True)
                files.get_file(name, str(copy))
            os.replace(partial, folder / path.name)
            seen[path.name] = state
            write_atomically(seen_file, json.dumps(seen).encode())
    except ImportError as error:
        raise CapabilityError(f"{url}: {error}", "pip install fsspec, and its package for such URLs") from error
    except FlashcoreError:
        raise
    except Exception as error:  # each file system has its own kinds
        raise FlashcoreError(f"{url}: expected a store of runs that can be read, found: {error}") from error
    return folder
