#!/usr/bin/env bash
# The image that a set of values runs. image.sh name: prints its name; image.sh build: builds it.
#   BATON_VALUES  the values (charts/baton/ci/cpu-values.yaml)    BATON_IMAGE         another name
#   EXTRA, BASE, SYSTEM_PACKAGES  the Dockerfile's arguments      DOCKER_BUILD_FLAGS  more flags for `docker build`
set -euo pipefail
cd "$(dirname "$0")/.."

name() {
  [ -z "${BATON_IMAGE:-}" ] || { echo "$BATON_IMAGE"; return; }
  helm template baton charts/baton -f "${BATON_VALUES:-charts/baton/ci/cpu-values.yaml}" --show-only templates/rayservice.yaml |
    sed -nE 's/^ *image: *"?([^" ]+)"?$/\1/p' | head -1
}

build() {
  local image flags=()
  image=$(name)
  # Docker without the buildx plug-in has the classic builder only, whose steps may lack a route out of the bridge.
  if docker buildx version >/dev/null 2>&1; then export DOCKER_BUILDKIT=1; else export DOCKER_BUILDKIT=0; flags=(--network host); fi
  echo "baton: building $image (the first time: ten minutes)"
  # shellcheck disable=SC2086  # flags given as one string
  docker build "${flags[@]}" ${DOCKER_BUILD_FLAGS:-} ${BASE:+--build-arg "BASE=$BASE"} \
    ${SYSTEM_PACKAGES:+--build-arg "SYSTEM_PACKAGES=$SYSTEM_PACKAGES"} \
    --build-arg "EXTRA=${EXTRA:-cpu}" --tag "$image" .
}

case "${1:-}" in
  name | build) "$1" ;;
  *) echo "baton: image.sh name | build" >&2; exit 2 ;;
esac
