"""Kinds of value that several parts of the chart share."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from app.faults import ENDPOINT_PATTERN

_UNITS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
_HOST = r"(\*\.)?[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_QUANTITY = r"^[0-9]+(\.[0-9]+)?(m|k|M|G|T|Ki|Mi|Gi|Ti)?$"

#: A quantity of Kubernetes, as text: ``500m``, ``2``, ``16Gi``.
Quantity = Annotated[str, Field(pattern=_QUANTITY)]

#: Text of an environment variable. Anything that YAML reads as a number or a truth value has to be quoted.
EnvValue = Annotated[str, Field(max_length=32768)]
EnvName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]

#: A name as a label of the domain name system takes it.
DnsName = Annotated[str, Field(pattern=r"^[a-z]([-a-z0-9]{0,51}[a-z0-9])?$")]

#: Address of a service over HTTP; empty: none.
HttpAddress = Annotated[str, Field(pattern=ENDPOINT_PATTERN)]

#: Name of an object of Kubernetes; empty: none.
ObjectName = Annotated[str, Field(pattern=r"^([a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?)?$")]

#: Name of a namespace.
NamespaceName = Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")]

#: Name of a host, without a scheme, port or path; `*.` stands for any first part.
HostName = Annotated[str, Field(pattern=rf"^{_HOST}$")]
HostNameOrNone = Annotated[str, Field(pattern=rf"^({_HOST})?$")]

#: An image with its tag or digest.
ImageName = Annotated[str, Field(pattern=r"^\S+$")]

#: Id of a model on the hub.
HubId = Annotated[str, Field(pattern=r"^[A-Za-z0-9][-._A-Za-z0-9]*(/[-._A-Za-z0-9]+)?$")]

#: Labels as Kubernetes takes them.
LabelKey = Annotated[
    str, Field(pattern=r"^([a-z0-9][-.a-z0-9]{0,251}[a-z0-9]/)?[A-Za-z0-9]([-._A-Za-z0-9]{0,61}[A-Za-z0-9])?$")
]
LabelValue = Annotated[str, Field(pattern=r"^([A-Za-z0-9]([-._A-Za-z0-9]{0,61}[A-Za-z0-9])?)?$")]
Labels = dict[LabelKey, LabelValue]

Port = Annotated[int, Field(ge=1, le=65535)]
Replicas = Annotated[int, Field(ge=0, le=10_000)]
Seconds = Annotated[int, Field(ge=0, le=604_800)]
SomePercent = Annotated[int, Field(ge=1, le=100)]

#: Kubernetes' own structures, handed through as they are.
Verbatim = dict[str, Any]
VerbatimList = list[dict[str, Any]]
Texts = dict[str, str]


def size_bytes(quantity: str) -> int:
    """Return a quantity of memory in bytes. Raises ValueError."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)(k|M|G|T|Ki|Mi|Gi|Ti)?", quantity)
    if match is None:
        raise ValueError(f"{quantity!r} is no quantity of memory; write it like 16Gi")
    return int(float(match[1]) * _UNITS[match[2] or ""])


def _memory(quantity: str) -> str:
    size_bytes(quantity)
    return quantity


#: Room on a volume, which is never none.
Storage = Annotated[
    str,
    Field(pattern=r"^[0-9]*[1-9][0-9]*(\.[0-9]+)?(k|M|G|T|Ki|Mi|Gi|Ti)?$"),
    AfterValidator(_memory),
]

#: A quantity of memory: ``512Mi``, ``16Gi``, or bytes.
Memory = Annotated[str, Field(pattern=r"^[0-9]+(\.[0-9]+)?(k|M|G|T|Ki|Mi|Gi|Ti)?$"), AfterValidator(_memory)]
