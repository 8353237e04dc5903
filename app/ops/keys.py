"""``python -m app.ops.keys``: makes API keys, and looks at the file that lists them.

``new`` prints a fresh secret once, on standard output, and the entry for the file on standard error, or adds the entry
to the file that ``--file`` names. ``hash`` reads a secret from standard input. ``list`` checks a file and shows its
keys. A secret never stands on the command line, where every user of the machine could read it.

Exit codes: 0 done; 1 the file is wrong; 2 wrong usage.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from app.config.base import describe
from app.errors import ConfigError, bounded
from app.keys.file import KeyEntry, KeysFile, hash_of, new_secret, read_keys
from app.ops.arguments import whole

_SCOPES = ("models", "profiles", "collections")
#: A secret of ours has 46 characters; what is much shorter can be guessed from its hash.
_SHORTEST_SECRET = 32


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    options = _parser().parse_args(arguments)
    try:
        done: int = options.run(options)
    except ConfigError as error:
        print(f"keys: {error}", file=sys.stderr)
        return 1
    return done


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m app.ops.keys", description="Make and look at API keys.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    new = commands.add_parser("new", help="make a key: its secret is printed once, its entry holds the hash")
    new.add_argument("--id", required=True, help="the key's name in logs and metrics")
    new.add_argument("--file", type=Path, help="the file of keys to add it to; made when it is not there")
    new.add_argument("--tenant", default="", help="whose documents it reaches (default: all)")
    for name in _SCOPES:
        new.add_argument(f"--{name}", nargs="*", default=["*"], metavar="NAME", help="names or patterns (default: *)")
    new.add_argument("--ingest", action="store_true", help="may store and delete documents")
    new.add_argument("--drop", action="store_true", help="may drop collections")
    new.add_argument("--concurrency", type=whole(1, 10**6), help="requests at work at once (default: any number)")
    tokens = whole(1, 10**12)
    new.add_argument("--tokens-per-minute", type=tokens, help="tokens of prompts and answers (default: any number)")
    new.add_argument("--days", type=whole(0, 36_500), help="days until it expires (default: never)")
    new.set_defaults(run=_new)
    hashed = commands.add_parser("hash", help="print the hash of the secret on standard input")
    hashed.set_defaults(run=_hash)
    listed = commands.add_parser("list", help="check a file and show its keys, without their hashes")
    listed.add_argument("--file", type=Path, required=True, help="the file of keys")
    listed.set_defaults(run=_list)
    return parser


def _new(options: argparse.Namespace) -> int:
    secret = new_secret()
    entry = _entry(options, secret)
    if options.file is None:
        print(yaml.safe_dump({"keys": [entry]}, sort_keys=False), end="", file=sys.stderr)
    else:
        _add(options.file, entry)
        print(f"{options.id} is added to {options.file}; its secret is shown this once:", file=sys.stderr)
    print(secret)
    return 0


def _entry(options: argparse.Namespace, secret: str) -> dict[str, Any]:
    kept: dict[str, Any] = {"hash": hash_of(secret)}
    if options.days is not None:
        kept["expires"] = (datetime.now(UTC) + timedelta(days=options.days)).isoformat(timespec="seconds")
    scopes = {name: getattr(options, name) for name in _SCOPES}
    limits = {"concurrency": options.concurrency, "tokensPerMinute": options.tokens_per_minute}
    entry = {
        "id": options.id,
        "secrets": [kept],
        **({"tenant": options.tenant} if options.tenant else {}),
        "scopes": {**scopes, "ingest": options.ingest, "drop": options.drop},
        "limits": {name: limit for name, limit in limits.items() if limit is not None},
    }
    try:
        KeyEntry.model_validate(entry)
    except ValidationError as error:
        raise ConfigError(describe(error, "this key:", echo=False)) from None
    return entry


def _add(path: Path, entry: dict[str, Any]) -> None:
    """Put the entry at the end of the file; a new one takes its place, since a gateway may read it at any time."""
    held = read_keys(path).model_dump(mode="json", by_alias=True, exclude_none=True)["keys"] if path.exists() else []
    if any(found["id"] == entry["id"] for found in held):
        raise ConfigError(
            f"{path} has a key {bounded(entry['id'])}: choose another id. To rotate its secret, add what `new` prints "
            "without --file to the key's secrets."
        )
    fresh = path.with_name(f".{path.name}.new")
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        yaml.safe_dump({"keys": [*held, entry]}, file, sort_keys=False)
    fresh.replace(path)


def _hash(options: argparse.Namespace) -> int:
    del options
    if sys.stdin.isatty():
        print("The secret, then Enter and Ctrl-D:", file=sys.stderr)
    secret = sys.stdin.read().strip()
    if len(secret) < _SHORTEST_SECRET:
        raise ConfigError(
            f"standard input holds {len(secret)} characters: a secret has {_SHORTEST_SECRET} at least, since a short "
            "one can be guessed from its hash. `python -m app.ops.keys new --id NAME` makes one."
        )
    print(hash_of(secret))
    return 0


def _list(options: argparse.Namespace) -> int:
    file: KeysFile = read_keys(options.file)
    print(f"{'KEY':<24} {'TENANT':<16} {'SECRETS':>7}  {'EXPIRES':<20}  MAY USE")
    for key in file.keys:
        print(f"{key.id:<24} {key.tenant or '-':<16} {len(key.secrets):>7}  {_end(key):<20}  {_uses(key)}")
    return 0


def _end(key: KeyEntry) -> str:
    if not key.expires:
        return "never"
    end = datetime.fromtimestamp(key.expires, UTC)
    return f"{end:%Y-%m-%d %H:%M}" + (" (over)" if end <= datetime.now(UTC) else "")


def _uses(key: KeyEntry) -> str:
    scopes = [f"{name} {', '.join(found)}" for name in _SCOPES if (found := getattr(key.scopes, name))]
    rights = [name for name in ("ingest", "drop") if getattr(key.scopes, name)]
    return "; ".join([*scopes, *rights]) or "nothing"


if __name__ == "__main__":
    sys.exit(main())
