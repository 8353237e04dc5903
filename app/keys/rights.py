"""What the key of a request may do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from app.config.gateway import GatewayConfig
from app.errors import Forbidden, bounded
from app.keys.file import KeyScopes


@dataclass(frozen=True, slots=True)
class Rights:
    """``scopes`` None: everything, as where no keys are asked for. ``tenant`` empty: the documents of all.

    A name outside of the scopes is refused before anybody looks whether it exists, so a refusal tells nothing of what
    others have.
    """

    scopes: KeyScopes | None = None
    tenant: str = ""

    def sees_model(self, name: str) -> bool:
        """Tell whether a model may be used."""
        return self.scopes is None or _within(name, self.scopes.models)

    def sees_profile(self, name: str) -> bool:
        """Tell whether a profile may be used."""
        return self.scopes is None or _within(name, self.scopes.profiles)

    def sees_collection(self, name: str) -> bool:
        """Tell whether a collection may be used."""
        return self.scopes is None or _within(name, self.scopes.collections)

    def check_model(self, name: str) -> None:
        """Raise Forbidden unless a model may be used."""
        if not self.sees_model(name):
            raise _forbidden(name, "model")

    def check_profile(self, name: str, param: str = "profile") -> None:
        """Raise Forbidden unless a profile may be used."""
        if not self.sees_profile(name):
            raise _forbidden(name, param)

    def check_names(self, config: GatewayConfig, profiles: Sequence[str | None], model: str | None) -> None:
        """Raise Forbidden unless all that a request names may be used, and the profile it falls to if it names nothing.

        A profile brings its model along. A model that is named alone answers under the default profile, which need not
        be in the scopes then. ``model`` may name a profile; what is no model is held against the scope of profiles.
        """
        named = [name for name in profiles if name is not None]
        for name in named:
            self.check_profile(name)
        if model is None:
            if not named:
                self.check_profile(config.default_profile)
        elif model not in config.models:
            self.check_profile(model, "model")
        elif not any(name in config.profiles and config.profiles[name].model == model for name in named):
            self.check_model(model)

    def check_collection(self, name: str, param: str = "name") -> None:
        """Raise Forbidden unless a collection may be used."""
        if not self.sees_collection(name):
            raise Forbidden(f"This key may not use the collection {bounded(name)}.", param=param)

    def check_searched(self, names: Sequence[str]) -> None:
        """Raise Forbidden unless all collections of a search may be used; the profile may have chosen them."""
        for name in names:
            if not self.sees_collection(name):
                raise Forbidden(
                    f"This key may not search the collection {bounded(name)}: name another one in rag.collection, or "
                    "send rag.enabled: false.",
                    param="rag.collection",
                )

    def check_ingest(self, name: str) -> None:
        """Raise Forbidden unless documents of a collection may be stored and deleted."""
        self.check_collection(name)
        if self.scopes is not None and not self.scopes.ingest:
            raise Forbidden("This key may not change documents: its scopes lack ingest.", param="name")

    def check_drop(self, name: str) -> None:
        """Raise Forbidden unless a whole collection may be dropped."""
        self.check_collection(name)
        if self.scopes is not None and not self.scopes.drop:
            raise Forbidden("This key may not drop collections: its scopes lack drop.", param="name")


#: Where no keys are asked for.
ALL = Rights()


def _forbidden(name: str, param: str) -> Forbidden:
    return Forbidden(f"This key may not use {bounded(name)}: GET /v1/models lists what it may.", param=param)


def _within(name: str, scopes: Sequence[str]) -> bool:
    return any(_fits(name, scope) for scope in scopes)


def _fits(name: str, scope: str) -> bool:
    """Tell whether a name is a scope's, of which ``*`` stands for any characters; one pass, however long the name."""
    first, *middle = scope.split("*")
    if not middle:
        return name == scope
    last, place = middle.pop(), len(first)
    if not name.startswith(first):
        return False
    for part in middle:
        found = name.find(part, place)
        if found < 0:
            return False
        place = found + len(part)
    return len(name) - len(last) >= place and name.endswith(last)
