#!/usr/bin/env bash
# Waits until a release serves and tells each change on the way: cluster_wait.sh NAMESPACE RELEASE.
# CLUSTER names the kind cluster; BATON_WAIT_SECONDS bounds the wait (1200).
set -euo pipefail
namespace=$1 release=$2 started=$SECONDS
kubectl=(kubectl --context "kind-${CLUSTER:-baton}" --namespace "$namespace")
mine="app.kubernetes.io/instance=$release"

# Jobs that did not succeed, a line each. They have no `succeeded` until they do, which a filter of jsonpath never matches.
unfinished() {
  "${kubectl[@]}" get jobs -l "$mine" -o 'jsonpath={range .items[*]}{.metadata.name}={.status.succeeded}{"\n"}{end}' |
    sed -n 's/=0*$//p'
}

# One line: pods by phase, Jobs that are not done, Serve's applications by status. The new cluster's where one is being made, else the active one's.
progress() {
  "${kubectl[@]}" get pods -l ray.io/cluster -o 'jsonpath={range .items[*]}{.metadata.labels.ray\.io/node-type}{"="}{.status.phase}{"\n"}{end}' |
    sort | uniq -c | awk '{printf "%s x%s  ", $2, $1}'
  unfinished | sed 's/^/job /; s/$/  /' | tr -d '\n'
  local state
  for state in pending active; do
    "${kubectl[@]}" get rayservice -l "$mine" -o go-template='{{range .items}}{{with .status}}{{with .'$state'ServiceStatus}}{{range $name, $app := .applicationStatuses}}{{$name}}={{$app.status}} {{end}}{{end}}{{end}}{{end}}'
  done
}

is_ready() {
  # Jobs that index collections begin once the gateway answers.
  local jobs
  jobs=$(unfinished) && [ -z "$jobs" ] || return 1
  local said
  said=$("${kubectl[@]}" get rayservice -l "$mine" -o 'jsonpath={range .items[*]}{.metadata.generation}={.status.observedGeneration} {.status.conditions[?(@.type=="Ready")].status} {.status.conditions[?(@.type=="UpgradeInProgress")].status}{end}')
  [[ $said =~ ^([0-9]+)=([0-9]+)\ True\ (False)?$ ]] && [ "${BASH_REMATCH[1]}" = "${BASH_REMATCH[2]}" ]
}

said=
while ! is_ready; do
  now=$(progress)
  if [[ $now == *DEPLOY_FAILED* ]] || [ $((SECONDS - started)) -gt "${BATON_WAIT_SECONDS:-1200}" ]; then
    echo "baton: the release $release does not serve: ${now:-nothing has started}; what the cluster says:" >&2
    "${kubectl[@]}" get pods >&2
    "${kubectl[@]}" get events --sort-by=.lastTimestamp | tail -15 >&2
    "${kubectl[@]}" get rayservice -l "$mine" -o 'jsonpath={.items[*].status}' >&2
    exit 1
  fi
  [ "$now" = "$said" ] || printf '[%5d s] %s\n' $((SECONDS - started)) "$now"
  said=$now
  sleep 3
done
printf '[%5d s] the release %s serves\n' $((SECONDS - started)) "$release"
