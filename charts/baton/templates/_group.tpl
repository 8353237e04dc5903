{{/* (list root values pod component): what the head and a worker group have in common. */}}
{{- define "baton.group" -}}
{{- $root := index . 0 -}}{{- $values := index . 1 -}}{{- $pod := index . 2 -}}{{- $component := index . 3 -}}
{{- $parameters := dict "object-store-memory" (include "baton.bytes" $pod.objectStore) -}}
{{- if eq $component "head" -}}{{- $_ := set $parameters "dashboard-host" "0.0.0.0" -}}{{- end -}}
rayStartParams:
  {{- include "baton.filled" (list $parameters $pod.rayStartParams) | fromJson | toYaml | nindent 2 }}
{{- with include "baton.rayResources" (list $values $pod) | fromJson }}
resources:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $pod.rayLabels }}
labels:
  {{- toYaml . | nindent 2 }}
{{- end }}
template:
  metadata:
    labels:
      {{- include "baton.selectorLabels" $root | nindent 6 }}
      app.kubernetes.io/component: {{ $component | quote }}
      {{- with $pod.podLabels }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
    {{- with $pod.podAnnotations }}
    annotations:
      {{- toYaml . | nindent 6 }}
    {{- end }}
  spec:
    serviceAccountName: {{ include "baton.serviceAccountName" (list $root $values) | quote }}
    automountServiceAccountToken: {{ and (eq $component "head") $values.autoscaling.enabled }}
    enableServiceLinks: false
    terminationGracePeriodSeconds: {{ $values.upgrade.terminationGracePeriodSeconds }}
    securityContext:
      {{- include "baton.podSecurityContext" $values | nindent 6 }}
    {{- with include "baton.pullSecrets" $values | fromJsonArray }}
    imagePullSecrets:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    {{- with $pod.runtimeClassName }}
    runtimeClassName: {{ . | quote }}
    {{- end }}
    {{- include "baton.placement" $pod | nindent 4 }}
    {{- if $pod.topologySpreadConstraints }}
    topologySpreadConstraints:
      {{- include "baton.spread" . | nindent 6 }}
    {{- end }}
    containers:
      - {{ include "baton.container" . | nindent 8 | trim }}
      {{- if $values.logCollector.enabled }}
      - {{ include "baton.logCollector" (list $root $values) | nindent 8 | trim }}
      {{- end }}
    volumes:
      {{- include "baton.volumes" (list $root $values $pod) | nindent 6 }}
      {{- if $values.logCollector.enabled }}
      - name: log-collector
        configMap: {name: {{ include "baton.fullname" $root }}-log-collector}
      - name: log-positions
        emptyDir: {}
      {{- end }}
{{- end -}}

{{- define "baton.container" -}}
{{- $root := index . 0 -}}{{- $values := index . 1 -}}{{- $pod := index . 2 -}}{{- $component := index . 3 -}}
{{- $capabilities := list -}}
{{- if ($pod.rdma | default dict).resource -}}{{- $capabilities = list "IPC_LOCK" -}}{{- end -}}
name: ray-{{ eq $component "head" | ternary "head" "worker" }}
image: {{ include "baton.image" (list $root $values) | quote }}
imagePullPolicy: {{ $values.image.pullPolicy }}
securityContext:
  {{- include "baton.securityContext" (list $values $capabilities) | nindent 2 }}
resources:
  {{- include "baton.resources" $pod | nindent 2 }}
env:
  {{- include "baton.env" (list $values $pod) | nindent 2 }}
ports:
  {{- if eq $component "head" }}
  - {name: gcs-server, containerPort: 6379}
  - {name: dashboard, containerPort: 8265}
  {{- end }}
  - {name: serve, containerPort: 8000}
  {{- if $values.grpc.enabled }}
  - {name: grpc, containerPort: {{ int $values.grpc.port }}}
  {{- end }}
  - {name: metrics, containerPort: 8080}
{{ include "baton.probes" $component }}
volumeMounts:
  {{- include "baton.volumeMounts" (list $values $pod) | nindent 2 }}
{{- end -}}

{{/*
The kubelet asks over HTTP, so the image needs no wget (case C16). A worker is ready when its Serve proxy is; the head
serves by a label that KubeRay keeps. Nothing here waits for a model: a slow load makes nobody kill the pod.
*/}}
{{- define "baton.probes" -}}
startupProbe:
  httpGet: {path: /api/healthz, port: 52365}
  periodSeconds: 5
  timeoutSeconds: 5
  failureThreshold: 120
livenessProbe:
  httpGet: {path: /api/healthz, port: 52365}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 60
readinessProbe:
  {{- if eq . "head" }}
  httpGet: {path: /api/healthz, port: 52365}
  periodSeconds: 5
  timeoutSeconds: 5
  failureThreshold: 10
  {{- else }}
  httpGet: {path: /-/healthz, port: 8000}
  periodSeconds: 5
  timeoutSeconds: 5
  failureThreshold: 2
  {{- end }}
{{- end -}}
