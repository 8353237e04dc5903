{{/* (list root values): the collector that sends the log files of a Ray pod on. */}}
{{- define "baton.logCollector" -}}
{{- $values := index . 1 -}}{{- $collector := $values.logCollector -}}
name: log-collector
image: {{ $collector.image | quote }}
imagePullPolicy: {{ $values.image.pullPolicy }}
args: ["--config=/etc/otelcol/config.yaml"]
securityContext:
  {{- include "baton.securityContext" (list $values list) | nindent 2 }}
resources:
  {{- toYaml $collector.resources | nindent 2 }}
env:
  - {name: RAY_LOGS, value: "/tmp/ray/session_2*/logs"}  # each session by its date; session_latest is one of them again
  - {name: LOGS_ENDPOINT, value: {{ $collector.endpoint | quote }}}
  - name: NAMESPACE
    valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
  - name: POD_NAME
    valueFrom: {fieldRef: {fieldPath: metadata.name}}
  - name: NODE_NAME
    valueFrom: {fieldRef: {fieldPath: spec.nodeName}}
volumeMounts:
  - {name: tmp, mountPath: /tmp, readOnly: true}
  - {name: log-collector, mountPath: /etc/otelcol, readOnly: true}
  - {name: log-positions, mountPath: /var/lib/otelcol}
{{- end -}}
