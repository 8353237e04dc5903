#!/usr/bin/env bash
# A kind cluster with the KubeRay operator and Baton in it; every step is skipped where its result is there.
# --no-release leaves Baton out. Variables (all optional):
#   BATON_CLUSTER, BATON_NAMESPACE, BATON_RELEASE   names, all `baton`
#   BATON_VALUES               values of the release (charts/baton/ci/cpu-values.yaml)
#   BATON_IMAGE                what to run; it is built when it is not there (the chart's image)
#   BATON_OPERATOR_MANIFESTS   folder for `kubectl apply -k` in place of the operator's public chart
#   DOCKER_BUILD_FLAGS         for `docker build`
set -euo pipefail
cd "$(dirname "$0")/.."
cluster=${BATON_CLUSTER:-baton} namespace=${BATON_NAMESPACE:-baton} release=${BATON_RELEASE:-baton}
values=${BATON_VALUES:-charts/baton/ci/cpu-values.yaml}
node_image=${KIND_NODE_IMAGE:-kindest/node:v1.34.4}
operator_version=1.6.0
start=$SECONDS
say() { printf '[%5d s] %s\n' $((SECONDS - start)) "$*"; }
fail() { echo "baton: $*" >&2; exit 2; }

check_tools() {
  local missing=()
  command -v docker >/dev/null || missing+=("docker (https://docs.docker.com/engine/install/)")
  command -v kind >/dev/null || missing+=("kind 0.30 or newer (https://kind.sigs.k8s.io)")
  command -v kubectl >/dev/null || missing+=("kubectl (https://kubernetes.io/docs/tasks/tools/)")
  command -v helm >/dev/null || missing+=("helm 3.14 or newer (https://helm.sh/docs/intro/install/)")
  [ ${#missing[@]} = 0 ] || fail "a cluster on this machine needs programs that are not on the PATH; install: $(IFS=','; echo "${missing[*]}")."
  docker info >/dev/null 2>&1 || fail "Docker is installed and does not answer: start it (systemctl start docker), or join the group docker."
}

make_cluster() {
  kind get clusters 2>/dev/null | grep -qx "$cluster" && return
  say "creating the kind cluster $cluster ($node_image)"
  kind create cluster --name "$cluster" --image "$node_image" --wait 120s --config scripts/kind.yaml
}

# The in-tree provisioner makes folders that only root may write to, and pods run as another user. Kubernetes gives them
# no group, as it does for other volumes, so a unit of the node opens each new one.
open_volumes() {
  local provisioners
  provisioners=$("${kubectl[@]}" get storageclass -o 'jsonpath={.items[*].provisioner}')
  [[ $provisioners == *kubernetes.io/host-path* ]] || return 0
  docker exec -i "$cluster-control-plane" sh -c 'mkdir -p /tmp/hostpath_pv && cd /etc/systemd/system &&
    printf "[Path]\nPathChanged=/tmp/hostpath_pv\n[Install]\nWantedBy=multi-user.target\n" >open-volumes.path &&
    printf "[Service]\nType=oneshot\nExecStart=/bin/sh -c \"chmod 0777 /tmp/hostpath_pv/*\"\n" >open-volumes.service &&
    systemctl daemon-reload && systemctl enable --quiet --now open-volumes.path'
}

load() {
  say "loading $1 into the node (seconds where it is there, minutes where not)"
  kind load docker-image --name "$cluster" "$1"
}

install_operator() {
  local image=quay.io/kuberay/operator:v$operator_version
  if docker image inspect "$image" >/dev/null 2>&1; then load "$image"; fi
  say "installing the KubeRay operator $operator_version"
  if [ -n "${BATON_OPERATOR_MANIFESTS:-}" ]; then
    "${kubectl[@]}" apply --server-side -k "$BATON_OPERATOR_MANIFESTS" >/dev/null
  else
    helm upgrade --install kuberay-operator kuberay-operator --repo https://ray-project.github.io/kuberay-helm/ \
      --kube-context "kind-$cluster" --version "$operator_version" --namespace kuberay-system --create-namespace >/dev/null
  fi
  # A definition without any condition yet makes `kubectl wait` give up.
  for _ in $(seq 30); do
    "${kubectl[@]}" wait --for=condition=Established crd/rayservices.ray.io --timeout=60s >/dev/null 2>&1 && break
    sleep 1
  done
  "${kubectl[@]}" wait deployment -A -l 'app.kubernetes.io/name in (kuberay,kuberay-operator)' --for=condition=Available \
    --timeout=180s >/dev/null
}

check_tools
kubectl=(kubectl --context "kind-$cluster")
make_cluster
open_volumes
install_operator
image=${BATON_IMAGE:-$(scripts/image.sh name)}
BATON_IMAGE=$image scripts/image.sh build
load "$image"
[ "${1:-}" != --no-release ] || { say "the cluster is ready for a release"; exit 0; }

"${kubectl[@]}" create namespace "$namespace" --dry-run=client -o yaml | "${kubectl[@]}" apply -f - >/dev/null
"${kubectl[@]}" label --overwrite namespace "$namespace" pod-security.kubernetes.io/enforce=restricted >/dev/null
say "installing the release $release from charts/baton with $values"
helm upgrade --install "$release" charts/baton --kube-context "kind-$cluster" --namespace "$namespace" -f "$values" >/dev/null
CLUSTER=$cluster scripts/cluster_wait.sh "$namespace" "$release"
cat <<TEXT
  reach it  kubectl --context kind-$cluster -n $namespace port-forward service/$release-serve-svc 8000
  test it   helm test $release --kube-context kind-$cluster -n $namespace
  remove    make cluster-down
TEXT
