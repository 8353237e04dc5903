{{/*
What a schema cannot say: values that do not fit together end the render with sentences that say what to change. Each
`baton.check.*` prints one line per fault, beginning with a dash.
*/}}
{{- define "baton.validate" -}}
{{- $root := . -}}
{{- $values := include "baton.values" . | fromJson -}}
{{- $text := include "baton.check.cluster" . -}}
{{- range $check := list "names" "labels" "options" "models" "profiles" "routing" "settings" "applications" "store" "capacity" "groups" "index" "modelCache" "upgrade" "redis" "rollout" "batch" "environment" "observing" "egress" "gateway" "auth" "engineLoop" -}}
{{- $text = print $text (include (printf "baton.check.%s" $check) (list $root $values)) -}}
{{- end -}}
{{- with trim $text -}}
{{- fail (printf "\n\nThese values do not fit together:\n%s\n" .) -}}
{{- end -}}
{{- end -}}

{{/*
`helm template` knows no cluster and asks for nothing; every real one serves apiregistration.k8s.io.
*/}}
{{- define "baton.check.cluster" -}}
{{- $known := .Capabilities.APIVersions -}}
{{- $real := $known.Has "apiregistration.k8s.io/v1" -}}
{{- $version := .Capabilities.KubeVersion.Version -}}
{{- if and $real (semverCompare "<1.29.0-0" $version) }}
- This cluster runs Kubernetes {{ $version }}, and the chart needs 1.29 or newer: upgrade the cluster.
{{- end -}}
{{- if and $real (semverCompare "<1.33.0-0" $version) (eq (include "baton.values" . | fromJson).modelCache.kind "image") }}
- modelCache.kind is image, which Kubernetes {{ $version }} cannot mount: upgrade to 1.33 or newer, or set modelCache.kind to claim.
{{- end -}}
{{- if and $real (not ($known.Has "ray.io/v1")) }}
- This cluster does not know RayService (ray.io/v1): install the KubeRay operator first, `helm install kuberay-operator kuberay-operator --repo https://ray-project.github.io/kuberay-helm/ --version 1.6.0 -n kuberay-system --create-namespace`.
{{- end -}}
{{- end -}}

{{- define "baton.check.names" -}}
{{- $name := include "baton.fullname" (index . 0) -}}
{{- if gt (len $name) 47 }}
- The name {{ $name }} has {{ len $name }} characters, and KubeRay takes at most 47: choose a shorter release name, or set fullnameOverride.
{{- end -}}
{{- if not (regexMatch "^[a-z]([-a-z0-9]*[a-z0-9])?$" $name) }}
- The name {{ $name }} is no DNS-1035 label: it must begin with a letter, end with a letter or digit, and hold only a-z, 0-9 and dashes. Choose another release name, or set fullnameOverride.
{{- end -}}
{{- if and (gt (len $name) 46) (index . 1).gcsFaultTolerance.enabled (index . 1).gcsFaultTolerance.redis.enabled }}
- The name {{ $name }} has {{ len $name }} characters, and with gcsFaultTolerance.redis at most 46 fit: Kubernetes labels its pod with the name and a hash. Choose a shorter release name, or set fullnameOverride.
{{- end -}}
{{- $seen := list "head" "index" "redis" "preload" "test" "doctor" "batch" -}}
{{- range (index . 1).workerGroups -}}
{{- if has .name $seen }}
- workerGroups: the name {{ .name }} is used twice or belongs to the chart: give each group its own, and none of head, index, redis, preload, test, doctor, batch.
{{- end -}}
{{- $seen = append $seen .name -}}
{{- end -}}
{{- end -}}

{{/* (list place labels): labels that the chart sets itself. */}}
{{- define "baton.check.ownLabels" -}}
{{- $place := index . 0 -}}
{{- range $name := keys (index . 1) | sortAlpha -}}
{{- if or (has $name (list "app.kubernetes.io/name" "app.kubernetes.io/instance" "app.kubernetes.io/component" "app.kubernetes.io/version" "app.kubernetes.io/managed-by" "helm.sh/chart")) (hasPrefix "ray.io/" $name) }}
- {{ $place }}.{{ $name }} is set by the chart or KubeRay, which find their objects by it: leave it out.
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "baton.check.labels" -}}
{{- $values := index . 1 -}}
{{- range $name := keys $values.commonAnnotations | sortAlpha -}}
{{- if or (hasPrefix "ray.io/" $name) (hasPrefix "helm.sh/" $name) }}
- commonAnnotations.{{ $name }} is an order to KubeRay or Helm, for every object: leave it out, values such as gcsFaultTolerance and upgrade give it where it belongs.
{{- end -}}
{{- end -}}
{{- include "baton.check.ownLabels" (list "commonLabels" $values.commonLabels) -}}
{{- include "baton.check.ownLabels" (list "observability.labels" $values.observability.labels) -}}
{{- include "baton.check.ownLabels" (list "observability.dashboardLabels" $values.observability.dashboardLabels) -}}
{{- include "baton.check.ownLabels" (list "head.podLabels" $values.head.podLabels) -}}
{{- range $values.workerGroups -}}
{{- include "baton.check.ownLabels" (list (printf "workerGroups %s: podLabels" .name) .podLabels) -}}
{{- end -}}
{{- end -}}

{{- define "baton.check.upgrade" -}}
{{- $values := index . 1 -}}{{- $upgrade := $values.upgrade -}}
{{- if le (int $upgrade.terminationGracePeriodSeconds) (int $upgrade.drainSeconds) }}
- upgrade.terminationGracePeriodSeconds is {{ $upgrade.terminationGracePeriodSeconds }} and upgrade.drainSeconds {{ $upgrade.drainSeconds }}: a pod would be killed while it drains. Make the first larger.
{{- end -}}
{{- if lt (float64 $upgrade.clusterDeletionDelaySeconds) (float64 $values.settings.limits.maxTimeoutSeconds) }}
- upgrade.clusterDeletionDelaySeconds is {{ $upgrade.clusterDeletionDelaySeconds }} and settings.limits.maxTimeoutSeconds {{ $values.settings.limits.maxTimeoutSeconds }}: the old cluster would go while it answers. Raise the first or lower the second.
{{- end -}}
{{- if eq $upgrade.type "NewClusterWithIncrementalUpgrade" -}}
{{- if not $values.autoscaling.enabled }}
- upgrade.type NewClusterWithIncrementalUpgrade needs Ray's autoscaler: set autoscaling.enabled, or choose NewCluster.
{{- end -}}
{{- if not $upgrade.incremental.gatewayClassName }}
- upgrade.type NewClusterWithIncrementalUpgrade needs upgrade.incremental.gatewayClassName, the Gateway class of the cluster.
{{- end -}}
{{- if not (has "RayServiceIncrementalUpgrade" $upgrade.operatorFeatureGates) }}
- upgrade.type NewClusterWithIncrementalUpgrade needs the KubeRay operator's feature gate RayServiceIncrementalUpgrade: start the operator with it and name it in upgrade.operatorFeatureGates, or choose NewCluster.
{{- end -}}
{{- if or $values.gateway.ingress.enabled $values.gateway.httpRoute.enabled }}
- With upgrade.type NewClusterWithIncrementalUpgrade KubeRay makes a Gateway and an HTTPRoute itself: turn gateway.ingress and gateway.httpRoute off.
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "baton.check.redis" -}}
{{- $values := index . 1 -}}{{- $tolerance := $values.gcsFaultTolerance -}}
{{- if $tolerance.enabled -}}
{{- if eq (not $tolerance.redisAddress) (not $tolerance.redis.enabled) }}
- gcsFaultTolerance needs one Redis: set gcsFaultTolerance.redisAddress to one of yours, or gcsFaultTolerance.redis.enabled for one of its own.
{{- end -}}
{{- if and $tolerance.redis.enabled (not $tolerance.passwordSecret) }}
- gcsFaultTolerance.redis.enabled needs gcsFaultTolerance.passwordSecret, a Secret with the password to use.
{{- end -}}
{{- else if $tolerance.redis.enabled }}
- gcsFaultTolerance.redis.enabled runs a Redis for gcsFaultTolerance, which is off: set gcsFaultTolerance.enabled as well, or leave redis off.
{{- end -}}
{{- range $place, $env := include "baton.environments" $values | fromJson -}}
{{- range $name := list "RAY_REDIS_ADDRESS" "REDIS_PASSWORD" "REDIS_USERNAME" "RAY_external_storage_namespace" -}}
{{- if hasKey $env $name }}
- {{ $place }}.{{ $name }}: KubeRay refuses it, and clusters that share one name space restore each other's actors: use gcsFaultTolerance.
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The places of pods' environments with what stands there. Takes the complete values. */}}
{{- define "baton.environments" -}}
{{- $found := dict "env" .env "secretEnv" .secretEnv "head.env" .head.env -}}
{{- range .workerGroups -}}{{- $_ := set $found (printf "workerGroups %s: env" .name) .env -}}{{- end -}}
{{- toJson $found -}}
{{- end -}}

{{- define "baton.check.environment" -}}
{{- $values := index . 1 -}}
{{- $owners := dict "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S" "upgrade.drainSeconds" "HF_HUB_OFFLINE" "modelCache.offline" "TRANSFORMERS_OFFLINE" "modelCache.offline" "HF_ENDPOINT" "modelCache.mirror" "RAY_enable_autoscaler_v2" "autoscaling.version" "RAY_ADDRESS" "" -}}
{{- range $place, $env := include "baton.environments" $values | fromJson -}}
{{- range $name, $owner := $owners -}}
{{- if hasKey $env $name }}
- {{ $place }}.{{ $name }}: {{ $owner | empty | ternary "leave it out, KubeRay sets it" (printf "use %s" $owner) }}.
{{- end -}}
{{- end -}}
{{- if ne $place "secretEnv" -}}
{{- range $name := keys $env | sortAlpha -}}
{{- if hasKey $values.secretEnv $name }}
- {{ $place }}.{{ $name }} stands in secretEnv as well: drop one of them.
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $name, $value := $values.runtimeEnv.env_vars -}}
{{- if not (kindIs "string" $value) }}
- runtimeEnv.env_vars.{{ $name }} is {{ toJson $value }}, and Ray takes text only: put it in quotes.
{{- end -}}
{{- end -}}
{{- range $model, $spec := $values.models -}}
{{- range $name, $value := ($spec.engine.runtime_env | default dict).env_vars -}}
{{- if not (kindIs "string" $value) }}
- models.{{ $model }}.engine.runtime_env.env_vars.{{ $name }} is {{ toJson $value }}, and Ray takes text only: put it in quotes.
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "baton.check.observing" -}}
{{- $values := index . 1 -}}
{{- if and $values.logCollector.enabled (not $values.logCollector.endpoint) (not $values.logCollector.config) }}
- logCollector needs logCollector.endpoint, the address that logs are sent to, or a logCollector.config of your own.
{{- end -}}
{{- if and $values.head.grafana.host (not $values.head.grafana.prometheusHost) }}
- head.grafana.host needs head.grafana.prometheusHost: Ray's dashboard shows Grafana's graphs only where it reaches Prometheus as well.
{{- end -}}
{{- end -}}

{{- define "baton.check.auth" -}}
{{- $values := index . 1 -}}{{- $auth := $values.auth -}}
{{- if $values.settings.auth.enabled -}}
{{- if and (not $auth.existingSecret) (hasPrefix "/etc/baton/keys/" $values.settings.auth.keysFile) }}
- settings.auth.enabled needs auth.existingSecret, a Secret with the file of keys (docs/keys.md); or mount a file of your own and name it in settings.auth.keysFile.
{{- end -}}
{{- if and $values.collections (not $auth.clientSecret) }}
- settings.auth.enabled closes the gateway to the Jobs that fill collections: give them a key with ingest in auth.clientSecret, or empty collections.
{{- end -}}
{{- end -}}
{{- end -}}

{{/* A policy that lets nothing out, and what it would cut off. */}}
{{- define "baton.check.egress" -}}
{{- $values := index . 1 -}}
{{- if and $values.networkPolicy.enabled $values.networkPolicy.egress (not $values.networkPolicy.egressTo) -}}
{{- $cut := dict -}}
{{- if or $values.settings.traces.endpoint $values.logCollector.enabled -}}{{- $_ := set $cut "the receiver of traces and logs" "" -}}{{- end -}}
{{- if $values.autoscaling.enabled -}}{{- $_ := set $cut "the Kubernetes API, which Ray's autoscaler asks" ", or turn autoscaling off" -}}{{- end -}}
{{- if $values.doctor.enabled -}}{{- $_ := set $cut "the Kubernetes API, which the doctor asks at an upgrade" ", or turn doctor off" -}}{{- end -}}
{{- if $values.head.grafana.host -}}{{- $_ := set $cut "Grafana and Prometheus, which head.grafana names" "" -}}{{- end -}}
{{- with $values.gcsFaultTolerance -}}
{{- if and .enabled .redisAddress -}}{{- $_ := set $cut (printf "gcsFaultTolerance.redisAddress %s" .redisAddress) "" -}}{{- end -}}
{{- end -}}
{{- if contains "://" $values.pipeline.store.uri -}}{{- $_ := set $cut (printf "pipeline.store.uri %s" $values.pipeline.store.uri) "" -}}{{- end -}}
{{- if $values.applications.articles.enabled -}}{{- $_ := set $cut "the pages that applications.articles fetches" "" -}}{{- end -}}
{{- with include "baton.hubModels" $values | fromJsonArray -}}
{{- if not $values.modelCache.offline -}}{{- $_ := set $cut (printf "the model hub, which %s come from" (join ", " .)) ", or set modelCache.offline" -}}{{- end -}}
{{- end -}}
{{- range $what, $else := $cut }}
- networkPolicy.egress cuts the pods off {{ $what }}: allow it in networkPolicy.egressTo{{ $else }}.
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "baton.check.gateway" -}}
{{- $values := index . 1 -}}{{- $gateway := $values.gateway -}}
{{- if and $values.grpc.enabled (has (int $values.grpc.port) (list 6379 8000 8080 8265 10001 52365)) }}
- grpc.port {{ int $values.grpc.port }} is taken in the pods by Ray or by the gateway's HTTP: choose another.
{{- end -}}
{{- if and $gateway.ingress.tlsSecret (not $gateway.ingress.host) }}
- gateway.ingress.tlsSecret needs gateway.ingress.host, the name that the certificate is for.
{{- end -}}
{{- $route := $gateway.httpRoute -}}
{{- if and $route.enabled (not $route.parentRefs) (not $route.gateway.create) }}
- gateway.httpRoute needs a Gateway: name one in gateway.httpRoute.parentRefs, or set gateway.httpRoute.gateway.create.
{{- end -}}
{{- if and $route.gateway.create (not $route.gateway.className) }}
- gateway.httpRoute.gateway.create needs gateway.httpRoute.gateway.className.
{{- end -}}
{{- end -}}
