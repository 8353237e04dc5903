#!/bin/sh
# Installs the locked packages of the image for one engine: image_packages.sh cpu|gpu. Runs inside the build.
set -eu
extra=$1
leave_out=
if [ "$extra" = cpu ]; then
  # What only a GPU calls: 3.4 GB. cudart stays, since torch asks it whether there is a GPU.
  for package in $(sed -nE 's/^name = "((nvidia|cuda)-[a-z0-9-]+|triton)"$/\1/p' uv.lock | grep -vx nvidia-cuda-runtime); do
    leave_out="$leave_out --no-install-package $package"
  done
fi
# shellcheck disable=SC2086  # a list of options
uv sync --quiet --frozen --no-default-groups --extra "$extra" --extra pgvector --extra qdrant \
  --python 3.11 --no-managed-python $leave_out
[ "$extra" != cpu ] || ./hollow_cuda.sh /opt/venv/lib/python3.11/site-packages
