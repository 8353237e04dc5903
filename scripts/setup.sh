#!/usr/bin/env bash
# Makes .venv from uv.lock. Arguments go to `uv sync`.
set -euo pipefail
cd "$(dirname "$0")/.."

python=$(command -v python3.11 || command -v python3 || true)
if [ -z "$python" ] || ! "$python" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))'; then
  echo "baton: Python 3.11 is needed and was not found on the PATH: install it (Debian: apt-get install python3.11 python3.11-venv)." >&2
  exit 2
fi
free_gib=$(($(df -Pk . | awk 'NR==2 {print $4}') / 1024 / 1024))
if [ ! -x .venv/bin/python ] && [ "$free_gib" -lt 14 ]; then
  echo "baton: the environment takes 9 GiB and the models 2, and $(pwd) has ${free_gib} GiB free: make room for 14 GiB." >&2
  exit 2
fi

uv=$(command -v uv || true)
if [ -z "$uv" ]; then
  if [ ! -x .uv/bin/uv ]; then
    echo "baton: installing uv into .uv"
    "$python" -m venv .uv && .uv/bin/pip install --quiet uv
  fi
  uv=.uv/bin/uv
fi
echo "baton: installing the locked packages into .venv (the first time: two to three minutes)"
# Bytecode is compiled now: importing the engine takes 40 s without and 15 to 20 s with it, in each of three processes.
# A version, not a path: another spelling of the same interpreter would make uv throw the environment away.
"$uv" sync --quiet --frozen --inexact --extra cpu --extra applications --compile-bytecode --python 3.11 --no-managed-python "$@"
