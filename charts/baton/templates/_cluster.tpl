{{/* (list root values): the spec of the Ray cluster, as a RayService and a RayJob hold it. */}}
{{- define "baton.rayCluster" -}}
{{- $root := index . 0 -}}{{- $values := index . 1 -}}
rayVersion: {{ $values.rayVersion | quote }}
{{- with $values.autoscaling }}
enableInTreeAutoscaling: {{ .enabled }}
{{- if .enabled }}
autoscalerOptions:
  version: {{ .version }}
  idleTimeoutSeconds: {{ .idleTimeoutSeconds }}
  upscalingMode: {{ .upscalingMode }}
  imagePullPolicy: {{ $values.image.pullPolicy }}
  resources:
    {{- toYaml .resources | nindent 4 }}
  env:
    - {name: HOME, value: /tmp}
  securityContext:
    {{- include "baton.securityContext" (list $values list) | nindent 4 }}
  volumeMounts:
    - {name: tmp, mountPath: /tmp}
{{- end }}
{{- end }}
{{- with $values.gcsFaultTolerance }}
{{- if .enabled }}
gcsFaultToleranceOptions:
  redisAddress: {{ .redisAddress | default (printf "%s-redis:6379" (include "baton.fullname" $root)) | quote }}
  {{- with .username }}
  redisUsername: {value: {{ . | quote }}}
  {{- end }}
  {{- with .passwordSecret }}
  redisPassword:
    valueFrom:
      secretKeyRef:
        {{- toYaml . | nindent 8 }}
  {{- end }}
{{- end }}
{{- end }}
headGroupSpec:
  {{- $head := set $values.head "index" (ne (toString $values.head.logicalCpus) "0") }}
  {{- include "baton.group" (list $root $values $head "head") | nindent 2 }}
workerGroupSpecs:
  {{- range $values.workerGroups }}
  - groupName: {{ .name | quote }}
    replicas: {{ .replicas }}
    minReplicas: {{ .minReplicas }}
    maxReplicas: {{ .maxReplicas }}
    numOfHosts: {{ .numOfHosts }}
    {{- if not (kindIs "invalid" .idleTimeoutSeconds) }}
    idleTimeoutSeconds: {{ .idleTimeoutSeconds }}
    {{- end }}
    {{- include "baton.group" (list $root $values . .name) | nindent 4 }}
  {{- end }}
{{- end -}}
