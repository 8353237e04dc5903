{{/*
What a schema cannot say: values that do not fit together end the render with sentences that say what to change. Each
`baton.check.*` prints one line per fault, beginning with a dash.
*/}}
{{- define "baton.validate" -}}
{{- $root := . -}}
{{- $values := include "baton.values" . | fromJson -}}
{{- $text := include "baton.check.cluster" . -}}
{{- range $check := list "names" "options" "models" "profiles" "capacity" "groups" "index" "modelCache" "upgrade" "redis" "rollout" "environment" "observing" "gateway" -}}
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
{{- if and ($known.Has "apiregistration.k8s.io/v1") (not ($known.Has "ray.io/v1")) }}
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
{{- $seen := list "head" "index" "redis" "preload" "test" -}}
{{- range (index . 1).workerGroups -}}
{{- if has .name $seen }}
- workerGroups: the name {{ .name }} is used twice or belongs to the chart: give each group its own, and none of head, index, redis, preload, test.
{{- end -}}
{{- $seen = append $seen .name -}}
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
{{- end -}}
{{- range $place, $env := dict "env" $values.env "head.env" $values.head.env "secretEnv" $values.secretEnv -}}
{{- range $name := list "RAY_REDIS_ADDRESS" "REDIS_PASSWORD" "REDIS_USERNAME" "RAY_external_storage_namespace" -}}
{{- if hasKey $env $name }}
- {{ $place }}.{{ $name }}: KubeRay refuses it, and clusters that share one name space restore each other's actors: use gcsFaultTolerance.
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "baton.check.environment" -}}
{{- $values := index . 1 -}}
{{- $owners := dict "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S" "upgrade.drainSeconds" "HF_HUB_OFFLINE" "modelCache.offline" "TRANSFORMERS_OFFLINE" "modelCache.offline" "HF_ENDPOINT" "modelCache.mirror" "RAY_ADDRESS" "nothing: KubeRay sets it" -}}
{{- range $name, $owner := $owners -}}
{{- if hasKey $values.env $name }}
- env.{{ $name }}: use {{ $owner }}.
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
{{- if and $values.networkPolicy.egress (not $values.networkPolicy.egressTo) (or $values.settings.traces.endpoint $values.logCollector.enabled) }}
- networkPolicy.egress cuts the pods off the receiver of traces and logs: allow it in networkPolicy.egressTo.
{{- end -}}
{{- if and $values.head.grafana.host (not $values.head.grafana.prometheusHost) }}
- head.grafana.host needs head.grafana.prometheusHost: Ray's dashboard shows Grafana's graphs only where it reaches Prometheus as well.
{{- end -}}
{{- end -}}

{{- define "baton.check.gateway" -}}
{{- $values := index . 1 -}}{{- $gateway := $values.gateway -}}
{{- if and $values.networkPolicy.egress $values.autoscaling.enabled (not $values.networkPolicy.egressTo) }}
- networkPolicy.egress cuts Ray's autoscaler off the Kubernetes API: allow it in networkPolicy.egressTo, or turn autoscaling off.
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
