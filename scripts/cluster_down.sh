#!/usr/bin/env bash
# Removes what cluster_up.sh made: the kind cluster with everything in it, and kind's network once no cluster uses it.
# Images stay in Docker for the next time.
set -euo pipefail
cluster=${BATON_CLUSTER:-baton}
for tool in docker kind; do
  command -v "$tool" >/dev/null || { echo "baton: $tool is not installed, so there is no cluster of ours to remove." >&2; exit 2; }
done
docker info >/dev/null 2>&1 || { echo "baton: Docker does not answer: start it, or there is nothing to remove." >&2; exit 2; }
kind delete cluster --name "$cluster"
if [ -z "$(kind get clusters 2>/dev/null)" ]; then docker network rm kind >/dev/null 2>&1 || true; fi
