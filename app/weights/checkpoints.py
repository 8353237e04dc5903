"""What models of transformers have in common: folder, device, and the copy of the weights that a node shares."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from app.config.embedder import looks_like_a_path
from app.delivery.hub import pull_from_hub, whole_copy
from app.errors import ConfigError, StageUnavailable
from app.logs import logger
from app.weights.sharing import Held, fingerprint, node_store, share

log = logger("weights")


def folder_of(
    source: str, local_files_only: bool, key: str, fault: Callable[[str, str], ConfigError], *, marker: str = ""
) -> Path:
    """Return the folder of a model's files: the named one, or that of a hub id in the local cache.

    An id is turned into a folder before transformers sees it, which otherwise asks the hub even when told not to.
    ``key`` is where the configuration names the source, ``fault`` makes the error from a reason and a remedy, and
    ``marker`` is a file that a named folder has to hold. Raises :class:`ConfigError`.
    """
    if looks_like_a_path(source):
        folder = Path(source).expanduser()
        if not folder.is_dir():
            raise fault("is not a folder", f"mount the model there or set {key}.source to where it is")
        if marker and not (folder / marker).is_file():
            raise fault(f"has no {marker}", f"set {key}.source to the folder that holds the model's files")
        return folder
    if not local_files_only:
        return pull_from_hub(source, "main", log.info)
    cached = whole_copy(source)
    if cached is None:
        remedy = f"set {key}.source to a mounted folder, or {key}.localFilesOnly to false to download it"
        raise fault("is not in the local hub cache", remedy)
    return cached


def pick_device(wanted: str, key: str, stage: str) -> str:
    """Return the device that ``key`` asks for; ``auto`` takes a GPU where there is one. Raises :class:`ConfigError`."""
    import torch

    has_gpu = torch.cuda.is_available()
    if wanted == "auto":
        return "cuda" if has_gpu else "cpu"
    if wanted != "cpu" and not has_gpu:
        raise ConfigError(
            f"{key} is {wanted} but no GPU is visible: set it to auto or cpu, or give the replica a GPU "
            "(ray_actor_options.num_gpus of its options)",
            stage,
        )
    return wanted


def node_copy(folder: Path, use: str, from_folder: Callable[[], Any], who: str) -> Held | None:
    """Return the node's copy of the model in ``folder``, loaded for ``use``.

    None when the node's store is away, since a private copy serves as well; ``who`` then says so in the log.
    """
    name = f"{folder.resolve()}:{use}"
    try:
        return share(node_store(), name, fingerprint(folder, name), from_folder)
    except StageUnavailable as error:
        log.warning("%s loads weights of its own: %s", who, error)
        return None
