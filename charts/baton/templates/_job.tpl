{{/* Pods beside the Ray cluster that run a command of the image: (list root values name command resources). */}}
{{- define "baton.commandPod" -}}
{{- $root := index . 0 -}}{{- $values := index . 1 -}}
restartPolicy: {{ index . 5 | default "OnFailure" }}
serviceAccountName: {{ index . 6 | default (include "baton.serviceAccountName" (list $root $values)) }}
automountServiceAccountToken: {{ not (empty (index . 6)) }}
enableServiceLinks: false
securityContext:
  {{- include "baton.podSecurityContext" $values | nindent 2 }}
{{- with include "baton.pullSecrets" $values | fromJsonArray }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* (list root values name command resources): the container of such a pod, without its volume mounts. */}}
{{- define "baton.commandContainer" -}}
{{- $root := index . 0 -}}{{- $values := index . 1 -}}
name: {{ index . 2 }}
image: {{ include "baton.image" (list $root $values) | quote }}
imagePullPolicy: {{ $values.image.pullPolicy }}
command:
  {{- toYaml (index . 3) | nindent 2 }}
env:
  {{- include "baton.env" (list $values dict) | nindent 2 }}
securityContext:
  {{- include "baton.securityContext" (list $values list) | nindent 2 }}
resources:
  {{- toYaml (index . 4) | nindent 2 }}
{{- end -}}
