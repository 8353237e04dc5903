{{/* The pods of the Ray cluster. Nothing volatile belongs here: any change replaces the whole cluster (case C01). */}}

{{- define "baton.podSecurityContext" -}}
runAsNonRoot: true
runAsUser: {{ .security.runAsUser }}
runAsGroup: {{ .security.runAsGroup }}
fsGroup: {{ .security.fsGroup }}
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{/* (list values capabilities) */}}
{{- define "baton.securityContext" -}}
{{- $security := (index . 0).security -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: {{ $security.readOnlyRootFilesystem }}
runAsNonRoot: true
seccompProfile: {type: RuntimeDefault}
capabilities:
  drop: [ALL]
  {{- with index . 1 }}
  add: {{ toJson . }}
  {{- end }}
{{- end -}}

{{/* (list values pod): the environment as a sorted list. A pod beside the cluster (an empty `pod`) runs no Ray. */}}
{{- define "baton.env" -}}
{{- $values := index . 0 -}}{{- $pod := index . 1 -}}{{- $cache := $values.modelCache -}}
{{- $env := deepCopy $values.environment -}}
{{- $_ := set $env "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S" (toString $values.upgrade.drainSeconds) -}}
{{- if ne $cache.kind "none" -}}{{- $_ := set $env "HF_HUB_CACHE" (printf "%s/hub" $cache.mountPath) -}}{{- end -}}
{{- if $cache.offline -}}
{{- $_ := set $env "HF_HUB_OFFLINE" "1" -}}{{- $_ := set $env "TRANSFORMERS_OFFLINE" "1" -}}
{{- end -}}
{{- with $cache.mirror -}}{{- $_ := set $env "HF_ENDPOINT" . -}}{{- end -}}
{{- with $pod.grafana -}}
{{- if .host -}}
{{- $_ := set $env "RAY_GRAFANA_HOST" .host -}}
{{- $_ := set $env "RAY_GRAFANA_IFRAME_HOST" (.iframeHost | default .host) -}}
{{- $_ := set $env "RAY_PROMETHEUS_HOST" .prometheusHost -}}
{{- $_ := set $env "RAY_PROMETHEUS_NAME" .prometheusName -}}
{{- end -}}
{{- end -}}
{{- range $name, $value := $values.env -}}{{- $_ := set $env $name $value -}}{{- end -}}
{{- range $name, $value := $pod.env -}}{{- $_ := set $env $name $value -}}{{- end -}}
{{- $list := list -}}
{{- range $name := keys $env | sortAlpha -}}
{{- if and (or $pod (not (hasPrefix "RAY_" $name))) (not (hasKey $values.secretEnv $name)) -}}
{{- $list = append $list (dict "name" $name "value" (get $env $name)) -}}
{{- end -}}
{{- end -}}
{{- range $name := keys $values.secretEnv | sortAlpha -}}
{{- $list = append $list (dict "name" $name "valueFrom" (dict "secretKeyRef" (get $values.secretEnv $name))) -}}
{{- end -}}
{{- toYaml $list -}}
{{- end -}}

{{/* Whether a pod mounts the index: workers that hold it, and the head where it runs replicas. */}}
{{- define "baton.mountsIndex" -}}
{{- if and (include "baton.hasIndex" (index . 0)) (index . 1).index -}}true{{- end -}}
{{- end -}}

{{- define "baton.volumeMounts" -}}
{{- $values := index . 0 -}}{{- $pod := index . 1 -}}
- {name: shared-mem, mountPath: /dev/shm}
- {name: tmp, mountPath: /tmp}
{{- if include "baton.mountsIndex" (list $values $pod) }}
- {name: index, mountPath: {{ $values.index.mountPath | quote }}}
{{- end }}
{{- if ne $values.modelCache.kind "none" }}
- {name: models, mountPath: {{ $values.modelCache.mountPath | quote }}{{ if eq $values.modelCache.kind "image" }}, readOnly: true{{ end }}}
{{- end }}
{{- include "baton.keysMount" $values }}
{{- with $pod.volumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "baton.volumes" -}}
{{- $root := index . 0 -}}{{- $values := index . 1 -}}{{- $pod := index . 2 -}}
- name: shared-mem
  emptyDir: {medium: Memory, sizeLimit: {{ $pod.sharedMemory | quote }}}
- name: tmp
  emptyDir: {}
{{- if include "baton.mountsIndex" (list $values $pod) }}
- name: index
  {{- if eq $values.index.kind "claim" }}
  persistentVolumeClaim: {claimName: {{ $values.index.claim.existing | default (printf "%s-index" (include "baton.fullname" $root)) | quote }}}
  {{- else }}
  emptyDir: {}
  {{- end }}
{{- end }}
{{- if ne $values.modelCache.kind "none" }}
- name: models
  {{- include "baton.cacheVolume" (list $root $values) | nindent 2 }}
{{- end }}
{{- include "baton.keysVolume" $values }}
{{- with $pod.volumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Requests and limits with the devices of the pod. */}}
{{- define "baton.resources" -}}
{{- $requests := deepCopy (.resources.requests | default dict) -}}
{{- $limits := deepCopy (.resources.limits | default dict) -}}
{{- $devices := dict -}}
{{- if .gpus -}}{{- $_ := set $devices .gpuResource (toString .gpus) -}}{{- end -}}
{{- if (.rdma | default dict).resource -}}{{- $_ := set $devices .rdma.resource (toString .rdma.count) -}}{{- end -}}
{{- if and .hugepages (ne (include "baton.bytes" .hugepages.amount) "0") -}}
{{- $_ := set $devices (printf "hugepages-%s" .hugepages.size) .hugepages.amount -}}
{{- end -}}
{{- range $name, $count := $devices -}}
{{- $_ := set $requests $name $count -}}{{- $_ := set $limits $name $count -}}
{{- end -}}
{{- toYaml (dict "requests" $requests "limits" $limits) -}}
{{- end -}}

{{/* (list root values pod component): constraints of spread, which count these pods unless they say whom. */}}
{{- define "baton.spread" -}}
{{- $labels := include "baton.selectorLabels" (index . 0) | fromYaml -}}
{{- $labels = set $labels "app.kubernetes.io/component" (index . 3) -}}
{{- $list := list -}}
{{- range (index . 2).topologySpreadConstraints -}}
{{- $list = append $list (include "baton.filled" (list (dict "labelSelector" (dict "matchLabels" $labels)) .) | fromJson) -}}
{{- end -}}
{{- toYaml $list -}}
{{- end -}}

{{/* What Ray hands out on the node, where it is not what the container has. */}}
{{- define "baton.rayResources" -}}
{{- $values := index . 0 -}}{{- $pod := index . 1 -}}
{{- $found := dict -}}
{{- range $name, $amount := $pod.rayResources -}}{{- $_ := set $found $name (toString $amount) -}}{{- end -}}
{{- if not (kindIs "invalid" $pod.logicalCpus) -}}{{- $_ := set $found "CPU" (toString $pod.logicalCpus) -}}{{- end -}}
{{- if and $pod.gpus (ne $pod.gpuResource "nvidia.com/gpu") -}}{{- $_ := set $found "GPU" (toString $pod.gpus) -}}{{- end -}}
{{- with $pod.accelerator -}}{{- $_ := set $found (printf "accelerator_type:%s" .) "1" -}}{{- end -}}
{{- if include "baton.mountsIndex" (list $values $pod) -}}{{- $_ := set $found "baton-index" "1000" -}}{{- end -}}
{{- toJson $found -}}
{{- end -}}
