"""A replica that shares weights, as an actor: in a module of its own, so that Ray's workers can import it."""

from pathlib import Path

import torch

from app.weights.sharing import Follower, Held, node_store, share

_WIDTH = 600  # a weight of 1.4 MB: an object of its own in shared memory


def make(value):
    model = torch.nn.Sequential(torch.nn.Linear(_WIDTH, _WIDTH), torch.nn.Linear(_WIDTH, _WIDTH))
    for parameter in model.parameters():
        parameter.data.fill_(value)
    return model.eval().requires_grad_(False)


class Replica:
    """What a deployment's replica does: shares the model at start, follows, takes one version per request."""

    def __init__(self, source, value):
        self.held = share(node_store(), "tiny", source, lambda: make(value))
        self.follower = Follower(self.held, self._adopt)
        self.follower.start()

    def _adopt(self, held: Held):
        self.held = held

    def ask(self):
        """Return the version and the values of all its tensors."""
        held = self.held
        return held.snapshot.version, sorted({float(p.reshape(-1)[-1]) for p in held.module.parameters()})

    def mapping(self):
        """Return the file that the first weight lies in."""
        pointer = self.held.module[0].weight.data_ptr()
        for line in Path("/proc/self/maps").read_text().splitlines():
            start, end = (int(part, 16) for part in line.split()[0].split("-"))
            if start <= pointer < end:
                return line.split(maxsplit=5)[5]
        return ""
