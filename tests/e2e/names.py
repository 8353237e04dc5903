"""What the cluster's pods look up in DNS, as CoreDNS logs it."""

import re
import time
from contextlib import contextmanager

import yaml

from tests.e2e.kube import CONTEXT, run

_SYSTEM = ("kubectl", "--context", CONTEXT, "--namespace", "kube-system")
#: HINFO is what CoreDNS asks itself when it starts, to find loops of its own making.
_ASKED = re.compile(r'"(?!HINFO)[A-Z]+ IN (\S+)\. udp ')
_OPENING = ".:53 {\n"
#: CoreDNS looks at its configuration every 30 s, and half as long again at worst.
_RELOAD_SECONDS = 50
#: Ray's dashboard looks at its start which cloud it runs in, by this name and a link-local address; it sends nothing.
_KNOWN = frozenset({"metadata.google.internal"})


@contextmanager
def asked():
    """Let CoreDNS log every question; yields a function that returns the names asked for since."""
    before = run(*_SYSTEM, "get", "configmap", "coredns", "-o", "yaml")
    corefile = run(*_SYSTEM, "get", "configmap", "coredns", "-o", "jsonpath={.data.Corefile}")
    assert _OPENING in corefile, corefile
    _apply(before, corefile.replace(_OPENING, f"{_OPENING}    log\n", 1))
    time.sleep(_RELOAD_SECONDS)
    try:
        yield _names
    finally:
        _apply(before, corefile)


def _apply(found, corefile):
    config = yaml.safe_load(found)
    config["metadata"] = {"name": "coredns", "namespace": "kube-system"}
    config["data"] = {"Corefile": corefile}
    run(*_SYSTEM, "apply", "--server-side", "--force-conflicts", "-f", "-", text=yaml.safe_dump(config))


def _names():
    lines = run(*_SYSTEM, "logs", "--selector=k8s-app=kube-dns", "--tail=-1")
    return set(_ASKED.findall(lines))


def outside(names):
    """Return the names among them that lie outside the cluster. The suffixes a pod tries first are of the cluster."""
    own = ("cluster.local", "in-addr.arpa", "ip6.arpa")
    return sorted(name for name in names if not name.endswith(own) and name not in _KNOWN)
