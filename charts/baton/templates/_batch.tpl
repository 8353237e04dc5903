{{/* What runs a batch: (list root values name batch). */}}

{{/* The command as a list. Rows that fail are part of the output: they end no Job. */}}
{{- define "baton.batchCommand" -}}
{{- $root := index . 0 -}}{{- $values := index . 1 -}}{{- $name := index . 2 -}}{{- $batch := index . 3 -}}
{{- $patience := $values.upgrade.initializingTimeoutSeconds | default 7200 | toString -}}
{{- $command := list "python" "-m" "app.ops.batch" $batch.input $batch.output "--tolerate-failed" "--priority" $batch.priority
  "--concurrency" (toString $batch.concurrency) "--wait-seconds" $patience -}}
{{- if eq $batch.engine "own" -}}
{{- $command = concat $command (list "--engine" "own" "--config" "/etc/baton/batch/serve.json") -}}
{{- else -}}
{{- $command = concat $command (list "--url" (include "baton.url" $root)) -}}
{{- end -}}
{{- if not (hasPrefix "/" $batch.output) -}}
{{- /* After the output, its date with it: a folder holds what is done of one output. */ -}}
{{- $output := regexReplaceAll "^[a-z0-9]+://" $batch.output "" | replace "/" "_" -}}
{{- $command = concat $command (list "--progress" (printf "%s/%s-%s.progress" $batch.mountPath $name $output)) -}}
{{- end -}}
{{- if $batch.retryFailed -}}{{- $command = append $command "--retry-failed" -}}{{- end -}}
{{- toJson $command -}}
{{- end -}}

{{- define "baton.batchVolume" -}}
{{- set (deepCopy .volume) "name" "batch" | toJson -}}
{{- end -}}

{{- define "baton.batchJob" -}}
{{- $root := index . 0 -}}{{- $values := index . 1 -}}{{- $batch := index . 3 -}}
{{- $command := include "baton.batchCommand" . | fromJsonArray -}}
{{- $container := include "baton.commandContainer" (list $root $values "batch" $command $batch.resources) | fromYaml -}}
{{- $mounts := list (dict "name" "tmp" "mountPath" "/tmp") -}}
{{- $volumes := list (dict "name" "tmp" "emptyDir" dict) -}}
{{- if $batch.volume -}}
{{- $mounts = append $mounts (dict "name" "batch" "mountPath" $batch.mountPath) -}}
{{- $volumes = append $volumes (include "baton.batchVolume" $batch | fromJson) -}}
{{- end -}}
{{- $pod := include "baton.commandPod" (list $root $values "Never" "") | fromYaml -}}
{{- $pod = merge $pod (dict "containers" (list (set $container "volumeMounts" $mounts)) "volumes" $volumes) -}}
{{- $labels := set (include "baton.selectorLabels" $root | fromYaml) "app.kubernetes.io/component" "batch" -}}
{{- /* Another try does not help a run that could not begin: a file that is not there, another input than before. */ -}}
{{- $useless := dict "action" "FailJob" "onExitCodes" (dict "containerName" "batch" "operator" "In" "values" (list 2)) -}}
{{- dict "backoffLimit" 10 "podFailurePolicy" (dict "rules" (list $useless))
  "template" (dict "metadata" (dict "labels" $labels) "spec" $pod) | toJson -}}
{{- end -}}

{{/* The release's own configuration, but for the files and batches of its API, which are its gateways' work. */}}
{{- define "baton.batchServeConfig" -}}
{{- $own := deepCopy . -}}
{{- $_ := set $own.settings "batches" (dict "folder" "") -}}
{{- include "baton.serveConfig" $own -}}
{{- end -}}

{{/*
A cluster of the release's groups. Serve runs there only once the job has begun, and KubeRay waits for ready pods before
it begins one: workers are ready as the head is, not by their proxies.
*/}}
{{- define "baton.batchRayJob" -}}
{{- $root := index . 0 -}}{{- $values := deepCopy (index . 1) -}}{{- $name := index . 2 -}}{{- $batch := index . 3 -}}
{{- $_ := set $values "gcsFaultTolerance" dict -}}
{{- $cluster := include "baton.rayCluster" (list $root $values) | fromYaml -}}
{{- $head := $cluster.headGroupSpec.template.spec -}}
{{- $probe := (index $head.containers 0).readinessProbe -}}
{{- range $group := concat (list $cluster.headGroupSpec) $cluster.workerGroupSpecs -}}
{{- $_ := set $group.template.metadata.labels "app.kubernetes.io/component" "batch" -}}
{{- $_ := set (index $group.template.spec.containers 0) "readinessProbe" $probe -}}
{{- end -}}
{{- $mounts := list (dict "name" "batch-serve" "mountPath" "/etc/baton/batch" "readOnly" true) -}}
{{- $volumes := list (dict "name" "batch-serve" "configMap" (dict "name" (printf "%s-batch-%s" (include "baton.fullname" $root) $name))) -}}
{{- if $batch.volume -}}
{{- $mounts = append $mounts (dict "name" "batch" "mountPath" $batch.mountPath) -}}
{{- $volumes = append $volumes (include "baton.batchVolume" $batch | fromJson) -}}
{{- end -}}
{{- $_ := set $head "volumes" (concat $head.volumes $volumes) -}}
{{- $container := index $head.containers 0 -}}
{{- $_ := set $container "volumeMounts" (concat $container.volumeMounts $mounts) -}}
{{- with $values.auth.clientSecret -}}
{{- $_ := set $container "env" (append $container.env (dict "name" "BATON_API_KEY" "valueFrom" (dict "secretKeyRef" .))) -}}
{{- end -}}
{{- dict "entrypoint" (include "baton.batchCommand" . | fromJsonArray | join " ") "submissionMode" "HTTPMode" "backoffLimit" 3
  "shutdownAfterJobFinishes" true "rayClusterSpec" $cluster | toJson -}}
{{- end -}}
