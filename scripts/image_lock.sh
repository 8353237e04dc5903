#!/bin/sh
# Writes what the image installs, out of the lock: image_lock.sh cpu|gpu FOLDER gives packages.txt and models.txt.
# A step of its own, so that a change of pyproject.toml that the image does not see installs nothing anew.
set -eu
extra=$1 folder=$2
leave_out=
if [ "$extra" = cpu ]; then
  # What only a GPU calls: 3.4 GB. cudart stays, since torch asks it whether there is a GPU.
  for package in $(sed -nE 's/^name = "((nvidia|cuda)-[a-z0-9-]+|triton)"$/\1/p' uv.lock | grep -vx nvidia-cuda-runtime); do
    leave_out="$leave_out --no-emit-package $package"
  done
fi
mkdir -p "$folder"
# shellcheck disable=SC2086  # a list of options
uv export --quiet --frozen --no-header --no-annotate --no-default-groups --extra "$extra" --extra pgvector --extra qdrant \
  --extra applications \
  $leave_out >"$folder/packages.txt"
uv export --quiet --frozen --no-header --no-annotate --only-group models >"$folder/models.txt"
