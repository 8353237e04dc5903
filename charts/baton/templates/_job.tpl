{{/* Pods beside the Ray cluster that run a command of the image. */}}

{{/* (list root values restartPolicy account): what they have in common; `account` in place of the release's, with a token. */}}
{{- define "baton.commandPod" -}}
{{- $root := index . 0 -}}{{- $values := index . 1 -}}
restartPolicy: {{ index . 2 }}
serviceAccountName: {{ index . 3 | default (include "baton.serviceAccountName" (list $root $values)) | quote }}
automountServiceAccountToken: {{ not (empty (index . 3)) }}
enableServiceLinks: false
securityContext:
  {{- include "baton.podSecurityContext" $values | nindent 2 }}
{{- with include "baton.pullSecrets" $values | fromJsonArray }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- include "baton.placement" $values.jobs }}
{{- end -}}

{{/* (values name): the API key of those that ask the gateway. */}}
{{- define "baton.clientKey" -}}
{{- $key := (index . 0).auth.clientSecret -}}
{{- if and $key (has (index . 1) (list "index" "ask" "batch")) }}
- {name: BATON_API_KEY, valueFrom: {secretKeyRef: {{ toJson $key }}}}
{{- end }}
{{- end -}}

{{/*
(list root values name command resources): the container of such a pod, without its volume mounts. Of `secretEnv`, which
is for engines, stores and the hub, it gets what it reads.
*/}}
{{- define "baton.commandContainer" -}}
{{- $root := index . 0 -}}{{- $values := index . 1 -}}
{{- $read := dict "preload" $values.secretEnv "rollout" (pick $values.secretEnv "PROMETHEUS_TOKEN")
  "batch" (pick $values.secretEnv "AWS_ACCESS_KEY_ID" "AWS_SECRET_ACCESS_KEY" "AWS_SESSION_TOKEN") -}}
{{- $bare := set (omit $values "secretEnv") "secretEnv" (get $read (index . 2) | default dict) -}}
name: {{ index . 2 }}
image: {{ include "baton.image" (list $root $values) | quote }}
imagePullPolicy: {{ $values.image.pullPolicy }}
command:
  {{- toYaml (index . 3) | nindent 2 }}
env:
  {{- include "baton.env" (list $bare dict) | nindent 2 }}
  {{- include "baton.clientKey" (list $values (index . 2)) | indent 2 }}
securityContext:
  {{- include "baton.securityContext" (list $values list) | nindent 2 }}
resources:
  {{- toYaml (index . 4) | nindent 2 }}
{{- end -}}

{{/* (list root values name collection) */}}
{{- define "baton.collectionPod" -}}
{{- $root := index . 0 -}}{{- $values := index . 1 -}}{{- $collection := index . 3 -}}
{{- $patience := $values.upgrade.initializingTimeoutSeconds | default 7200 | toString -}}
{{- $command := list "python" "-m" "app.ops.ingest" "--url" (include "baton.url" $root) "--wait-seconds" $patience
  "--collection" (index . 2) $collection.path -}}
{{- $resources := dict "requests" (dict "cpu" "100m" "memory" "256Mi") "limits" (dict "memory" "2Gi") -}}
{{ include "baton.commandPod" (list $root $values "OnFailure" "") }}
containers:
  - {{ include "baton.commandContainer" (list $root $values "index" $command $resources) | nindent 4 | trim }}
    volumeMounts:
      - {name: tmp, mountPath: /tmp}
      {{- if $collection.volume }}
      - {name: documents, mountPath: {{ $collection.mountPath | quote }}, readOnly: true}
      {{- end }}
volumes:
  - name: tmp
    emptyDir: {}
  {{- with $collection.volume }}
  - {{ set (deepCopy .) "name" "documents" | toYaml | nindent 4 | trim }}
  {{- end }}
{{- end -}}

{{/* (list root values) */}}
{{- define "baton.preloadPod" -}}
{{- $root := index . 0 -}}{{- $values := index . 1 -}}{{- $cache := $values.modelCache -}}
{{- $wanted := list $values.pipeline.embedder.source -}}
{{- range $name, $model := $values.models -}}
{{- $revision := ($model.engine.engine_kwargs | default dict).revision -}}
{{- $source := include "baton.hubSource" $model -}}
{{- $wanted = concat $wanted (list $model.tokenizer (empty $revision | ternary $source (printf "%s@%v" $source $revision))) -}}
{{- end -}}
{{- range $values.applications -}}
{{- if .enabled -}}{{- $wanted = concat $wanted (include "baton.hubSteps" (list . true) | fromJsonArray) -}}{{- end -}}
{{- end -}}
{{- $ids := list -}}
{{- range $wanted -}}
{{- if regexMatch "^[A-Za-z0-9][-._A-Za-z0-9]*/[-._A-Za-z0-9]+(@.+)?$" . -}}{{- $ids = append $ids . -}}{{- end -}}
{{- end -}}
{{- $command := concat (list "python" "-m" "app.ops.models" "pull" "--verify") (concat $cache.preload.models $ids | uniq | sortAlpha) -}}
{{ include "baton.commandPod" (list $root $values "OnFailure" "") }}
containers:
  - {{ include "baton.commandContainer" (list $root $values "preload" $command $cache.preload.resources) | nindent 4 | trim }}
    volumeMounts:
      - {name: tmp, mountPath: /tmp}
      - {name: models, mountPath: {{ $cache.mountPath | quote }}}
volumes:
  - name: tmp
    emptyDir: {}
  - name: models
    {{- include "baton.cacheVolume" (list $root $values) | nindent 4 }}
{{- end -}}
