"""``python -m app.ops.preload ID…``: fetches models from a Hugging Face hub into the local cache.

Where the cache lies and which mirror is asked say ``HF_HUB_CACHE`` and ``HF_ENDPOINT``. Exit codes: 0 all there; 1 one
could not be fetched, with one sentence on it (what came stays: run the same command again to go on).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

#: What engines read; the same weights in other formats stay on the hub.
_PATTERNS = ["*.json", "*.safetensors", "*.model", "*.txt", "*.jinja", "*.py", "*.tiktoken"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Fetch each model in turn; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m app.ops.preload", description="Fetch models into the local cache.")
    parser.add_argument("models", nargs="*", metavar="ID", help="Hugging Face ids, such as BAAI/bge-m3")
    for model in parser.parse_args(arguments).models:
        fault = fetch(model)
        if fault:
            print(f"preload: {model} could not be fetched: {fault}", file=sys.stderr)
            return 1
    return 0


def fetch(model: str) -> str | None:
    """Fetch one model; return what went wrong, and what to do about it."""
    import httpx
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, RepositoryNotFoundError

    print(f"fetching {model}", flush=True)
    try:
        folder = snapshot_download(model, allow_patterns=_PATTERNS)
    except GatedRepoError:
        return "its owner asks for consent; give it on the hub, and set HF_TOKEN from a Secret (secretEnv)"
    except RepositoryNotFoundError:
        return "the hub has no such model, or it is private: correct the id, or set HF_TOKEN from a Secret (secretEnv)"
    except HfHubHTTPError as error:
        return f"the hub answered {error.response.status_code}; run the Job again later"
    except (OSError, httpx.HTTPError) as error:
        return f"{type(error).__name__}: {str(error)[:300]}; is the hub (or HF_ENDPOINT) reachable, and is there room?"
    print(f"{model} lies in {folder}", flush=True)
    return None


if __name__ == "__main__":
    sys.exit(main())
