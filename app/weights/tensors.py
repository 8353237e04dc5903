"""From a torch module to named bytes and back; on the way back nothing is copied."""

from __future__ import annotations

import hashlib
import io
import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from app.errors import ConfigError, bounded
from app.weights.snapshot import SKELETON, FileRegion, Packed, Snapshot, TensorEntry

Bytes = npt.NDArray[np.uint8]
#: A tensor of a file smaller than this is not worth a mapping of its own.
_REGION_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Content:
    """What is published of one tensor: its form, and either its bytes or where a file holds them."""

    shape: tuple[int, ...]
    dtype: str
    digest: str
    nbytes: int
    data: Bytes | FileRegion


def take_apart(module: Any) -> dict[str, Content]:
    """Return the module's tensors by name and, as ``SKELETON``, what is left of it without them.

    Every tensor counts, also buffers that no state dict has: they would be missing when it is put together.
    """
    regions = _mapped_files()
    skeleton, tensors = _split(module)
    found = {name: _content(tensor, regions) for name, tensor in tensors.items()}
    data = np.frombuffer(skeleton, np.uint8)
    found[SKELETON] = Content(data.shape, "uint8", hashlib.sha256(data.data).hexdigest(), data.nbytes, data)
    return found


def put_together(snapshot: Snapshot, packs: Mapping[int, Bytes]) -> Any:
    """Return the module of a snapshot, its tensors lying where ``packs`` and the files do.

    torch knows no read-only tensor: nothing may write to these. They require no gradient, and Baton runs models in
    inference mode.
    """
    data = _bytes(snapshot, snapshot.entry(SKELETON), packs)
    return _Assembler(io.BytesIO(data.data), snapshot, packs).load()


class _Splitter(pickle.Pickler):
    """Pickles a module with each tensor replaced by its name."""

    def __init__(self, target: io.BytesIO, names: dict[int, str]) -> None:
        super().__init__(target, protocol=5)
        self._names = names
        self.tensors: dict[str, Any] = {}

    def persistent_id(self, obj: Any) -> tuple[str, bool] | None:
        """Return the name of a tensor and whether it is a parameter; of anything else, None."""
        import torch

        if not isinstance(obj, torch.Tensor):
            return None
        name = self._names.setdefault(id(obj), f"(attribute {len(self._names)})")
        self.tensors[name] = obj
        return name, isinstance(obj, torch.nn.Parameter)


class _Assembler(pickle.Unpickler):
    """Puts the tensors of a snapshot where the skeleton names them; tied ones stay tied."""

    def __init__(self, source: io.BytesIO, snapshot: Snapshot, packs: Mapping[int, Bytes]) -> None:
        super().__init__(source)
        self._snapshot = snapshot
        self._packs = packs
        self._made: dict[str, Any] = {}

    def persistent_load(self, pid: Any) -> Any:
        """Return the tensor of that name, a view of the mapped bytes."""
        import torch

        name, is_parameter = pid
        if name not in self._made:
            entry = self._snapshot.entry(name)
            tensor = _view(_bytes(self._snapshot, entry, self._packs), entry)
            self._made[name] = torch.nn.Parameter(tensor, requires_grad=False) if is_parameter else tensor
        return self._made[name]


def _split(module: Any) -> tuple[bytes, dict[str, Any]]:
    names = {id(tensor): name for name, tensor in [*module.named_buffers(), *module.named_parameters()]}
    target = io.BytesIO()
    splitter = _Splitter(target, names)
    try:
        splitter.dump(module)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise ConfigError(
            f"the weights of {bounded(type(module).__name__)} cannot be shared ({bounded(str(error), 200)}): "
            "set sharedWeights to false"
        ) from None
    return target.getvalue(), splitter.tensors


def _content(tensor: Any, regions: list[_MappedFile]) -> Content:
    import torch

    plain = tensor.detach()
    if plain.device.type != "cpu":
        raise ConfigError(f"weights on {plain.device.type} cannot be shared: set sharedWeights to false")
    shape, dtype = tuple(plain.shape), str(plain.dtype).removeprefix("torch.")
    nbytes = plain.numel() * plain.element_size()
    data = plain.contiguous().reshape(-1).view(torch.uint8).numpy() if nbytes else np.empty(0, np.uint8)
    digest = hashlib.sha256(data.data).hexdigest()
    return Content(shape, dtype, digest, nbytes, _region(plain, nbytes, regions) or data)


def _view(data: Bytes, entry: TensorEntry) -> Any:
    import torch

    dtype = getattr(torch, entry.dtype)
    if not entry.nbytes:
        return torch.empty(entry.shape, dtype=dtype)
    # DLPack takes read-only memory; from_numpy and frombuffer warn of it.
    return torch.from_dlpack(data).view(dtype).reshape(entry.shape)


def _bytes(snapshot: Snapshot, entry: TensorEntry, packs: Mapping[int, Bytes]) -> Bytes:
    place = entry.place
    if isinstance(place, Packed):
        return packs[place.pack][place.offset : place.offset + entry.nbytes]
    place.check(snapshot.model)
    return np.memmap(place.path, np.uint8, "r", place.offset, (entry.nbytes,))


# --- files that a module's tensors lie in ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _MappedFile:
    """A stretch of this process's memory that is a file of weights."""

    start: int
    end: int
    offset: int
    path: str


def _mapped_files(maps: Path = Path("/proc/self/maps")) -> list[_MappedFile]:
    found = []
    for line in maps.read_text().splitlines() if maps.exists() else ():
        addresses, _, offset, _, _, *path = line.split(maxsplit=5)
        if path and path[0].endswith(".safetensors"):
            start, end = (int(address, 16) for address in addresses.split("-"))
            found.append(_MappedFile(start, end, int(offset, 16), path[0]))
    return found


def _region(tensor: Any, nbytes: int, files: list[_MappedFile]) -> FileRegion | None:
    if nbytes < _REGION_BYTES or not tensor.is_contiguous():
        return None
    start = tensor.data_ptr()
    for file in files:
        if file.start <= start and start + nbytes <= file.end:
            status = Path(file.path).stat()
            return FileRegion(file.path, file.offset + start - file.start, status.st_size, status.st_mtime_ns)
    return None
