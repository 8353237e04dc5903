{{/* Whether batches, of the chart's and of the API's, have what they need. Every check takes (list root values). */}}

{{- define "baton.check.batch" -}}
{{- $root := index . 0 -}}{{- $values := index . 1 -}}
{{- range $name, $batch := $values.batch -}}
{{- $place := printf "batch.%s" $name -}}
{{- if and (not $batch.volume) (or (hasPrefix "/" $batch.input) (hasPrefix "/" $batch.output)) }}
- {{ $place }} reads or writes files and has no volume: name one in {{ $place }}.volume, or use s3://… or gs://….
{{- else if not $batch.volume }}
- {{ $place }} has no volume to keep what is done on, and would begin anew after each restart: name one in {{ $place }}.volume.
{{- end -}}
{{- range $file := list $batch.input $batch.output -}}
{{- if and $batch.volume (hasPrefix "/" $file) (not (hasPrefix (printf "%s/" $batch.mountPath) $file)) }}
- {{ $place }} names {{ $file }}, which does not lie on its volume at {{ $batch.mountPath }}: move it there, or change {{ $place }}.mountPath.
{{- end -}}
{{- end -}}
{{- if eq $batch.input $batch.output }}
- {{ $place }}: input and output are the same file: name another output.
{{- end -}}
{{- if and $batch.schedule (not (contains "{date}" $batch.output)) }}
- {{ $place }} has a schedule, and each run would meet the output of the one before: put {date} into {{ $place }}.output.
{{- end -}}
{{- if not (hasKey $values.settings.priorities $batch.priority) }}
- {{ $place }}.priority names {{ $batch.priority }}, which settings.priorities does not hold.
{{- end -}}
{{- if and $values.settings.auth.enabled (not $values.auth.clientSecret) }}
- settings.auth.enabled closes the gateway to {{ $place }}: give it a key in auth.clientSecret.
{{- end -}}
{{- if eq $batch.engine "own" -}}
{{- include "baton.check.ownBatch" (list $root $values $name $batch) -}}
{{- end -}}
{{- end -}}
{{- include "baton.check.batchFolder" $values -}}
{{- end -}}

{{/* (list root values name batch) */}}
{{- define "baton.check.ownBatch" -}}
{{- $values := index . 1 -}}{{- $name := index . 2 -}}{{- $batch := index . 3 -}}
{{- $place := printf "batch.%s" $name -}}
{{- if and $batch.schedule (not (has "RayCronJob" $values.upgrade.operatorFeatureGates)) }}
- {{ $place }} with engine own and a schedule needs the KubeRay operator's feature gate RayCronJob: start the operator with it and name it in upgrade.operatorFeatureGates, or choose engine shared.
{{- end -}}
{{- if and (include "baton.hasIndex" $values) (or (ne $values.index.kind "claim") (ne $values.index.claim.accessMode "ReadWriteMany")) }}
- {{ $place }} with engine own opens the index beside the release: set index.kind to claim and index.claim.accessMode to ReadWriteMany, move the collections to another pipeline.store, or choose engine shared.
{{- end -}}
{{- $full := printf "%s-batch-%s" (include "baton.fullname" (index . 0)) $name -}}
{{- $most := $batch.schedule | empty | ternary 32 35 -}}
{{- if gt (len $full) $most }}
- The name {{ $full }} has {{ len $full }} characters, and for {{ $place }} with engine own KubeRay takes at most {{ $most }}: choose a shorter name for the batch, or set fullnameOverride.
{{- end -}}
{{- end -}}

{{/* The folder of the API's files and batches has to be on a volume wherever a gateway may run. */}}
{{- define "baton.check.batchFolder" -}}
{{- $values := . -}}{{- $folder := $values.settings.batches.folder -}}
{{- if $folder -}}
{{- if not (hasKey $values.settings.priorities $values.settings.batches.priority) }}
- settings.batches.priority names {{ $values.settings.batches.priority }}, which settings.priorities does not hold.
{{- end -}}
{{- $pods := dict -}}
{{- if ne (toString $values.head.logicalCpus) "0" -}}{{- $_ := set $pods "head" $values.head -}}{{- end -}}
{{- range $values.workerGroups -}}{{- $_ := set $pods (printf "workerGroups %s" .name) . -}}{{- end -}}
{{- range $place, $pod := $pods -}}
{{- $mounted := false -}}
{{- $mounts := default (list) $pod.volumeMounts -}}
{{- if and (include "baton.mountsIndex" (list $values $pod)) (eq $values.index.kind "claim") -}}
{{- $mounts = append $mounts (dict "mountPath" $values.index.mountPath) -}}
{{- end -}}
{{- range $mounts -}}
{{- if or (eq .mountPath $folder) (hasPrefix (printf "%s/" .mountPath) $folder) -}}{{- $mounted = true -}}{{- end -}}
{{- end -}}
{{- if not $mounted }}
- settings.batches.folder is {{ $folder }}, and {{ $place }}, where a gateway may run, mounts no volume there: mount one claim that all of them share in volumes and volumeMounts, or choose a folder on the claim of the index (below {{ $values.index.mountPath }}).
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
