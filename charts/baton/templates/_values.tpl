{{/*
The values, complete: what an older release or `null` left out comes from files/defaults.yaml (generated from the same
models as values.schema.json), so no template meets a missing key (case C07).
*/}}

{{/*
(list defaults given): `given` with what it lacks, at every depth that `defaults` knows, as JSON. Requests and limits are
taken or left as a whole: a limit that somebody left out is meant to be none.
*/}}
{{- define "baton.filled" -}}
{{- $out := dict -}}
{{- range $key, $value := index . 1 -}}
{{- if not (kindIs "invalid" $value) -}}{{- $_ := set $out $key $value -}}{{- end -}}
{{- end -}}
{{- range $key, $value := index . 0 -}}
{{- if not (hasKey $out $key) -}}
{{- $_ := set $out $key $value -}}
{{- else if and (ne $key "resources") (kindIs "map" $value) (kindIs "map" (get $out $key)) -}}
{{- $_ := set $out $key (include "baton.filled" (list $value (get $out $key)) | fromJson) -}}
{{- end -}}
{{- end -}}
{{- toJson $out -}}
{{- end -}}

{{/* (list options defaults fallback): a deployment's options with autoscaling filled in; `fallback`: given where none is. */}}
{{- define "baton.options" -}}
{{- $options := deepCopy (index . 0) -}}
{{- if and (index . 2) (not (hasKey $options "num_replicas")) (not (hasKey $options "autoscaling_config")) -}}
{{- $_ := set $options "autoscaling_config" dict -}}
{{- end -}}
{{- if hasKey $options "autoscaling_config" -}}
{{- $given := kindIs "map" $options.autoscaling_config | ternary $options.autoscaling_config dict -}}
{{- $filled := include "baton.filled" (list (index . 1) $given) | fromJson -}}
{{- if kindIs "invalid" $filled.initial_replicas -}}
{{- $_ := set $filled "initial_replicas" (min (max 2 (int $filled.min_replicas)) (int $filled.max_replicas)) -}}
{{- end -}}
{{- $_ := set $options "autoscaling_config" $filled -}}
{{- end -}}
{{- toJson $options -}}
{{- end -}}

{{- define "baton.models" -}}
{{- $defaults := index . 0 -}}
{{- $models := dict -}}
{{- range $name, $model := index . 1 -}}
{{- $model = include "baton.filled" (list $defaults.model $model) | fromJson -}}
{{- $_ := set $model "options" (include "baton.options" (list $model.options $defaults.autoscaling true) | fromJson) -}}
{{- $loading := ($model.engine | default dict).model_loading_config | default dict -}}
{{- $source := kindIs "string" $loading.model_source | ternary $loading.model_source "" -}}
{{- $window := (($model.engine | default dict).engine_kwargs | default dict).max_model_len -}}
{{- $_ := set $model "tokenizer" ($model.tokenizer | default $source | default $loading.model_id | default "") -}}
{{- $_ := set $model "contextTokens" ($model.contextTokens | default $window | default 8192) -}}
{{- $_ := set $models $name $model -}}
{{- end -}}
{{- toJson $models -}}
{{- end -}}

{{/*
The complete values as JSON. They are kept beside the values for the templates that follow: working them out takes a
tenth of a second, and ten templates want them.
*/}}
{{- define "baton.values" -}}
{{- if not (hasKey .Values "completed__") -}}
{{- $_ := set .Values "completed__" (include "baton.completed" .) -}}
{{- end -}}
{{- get .Values "completed__" -}}
{{- end -}}

{{- define "baton.completed" -}}
{{- $defaults := .Files.Get "files/defaults.yaml" | fromYaml -}}
{{- $values := include "baton.filled" (list $defaults.values (omit .Values "global" "enabled")) | fromJson -}}
{{- if not $values.models -}}
{{- $_ := set $values "models" (.Files.Get "files/starter.yaml" | fromYaml) -}}
{{- end -}}
{{- $_ := set $values "models" (include "baton.models" (list $defaults $values.models) | fromJson) -}}
{{- range $name, $stage := $values.pipeline.stages -}}
{{- $_ := set $stage "options" (include "baton.options" (list $stage.options $defaults.autoscaling false) | fromJson) -}}
{{- end -}}
{{- range $values.applications -}}
{{- range .stages -}}
{{- $_ := set . "options" (include "baton.options" (list .options $defaults.autoscaling false) | fromJson) -}}
{{- end -}}
{{- end -}}
{{- $groups := list -}}
{{- range $values.workerGroups -}}
{{- $groups = append $groups (include "baton.filled" (list $defaults.workerGroup .) | fromJson) -}}
{{- end -}}
{{- $_ := set $values "workerGroups" $groups -}}
{{- range $name, $collection := $values.collections -}}
{{- $_ := set $values.collections $name (include "baton.filled" (list $defaults.collection $collection) | fromJson) -}}
{{- end -}}
{{- range $name, $batch := $values.batch -}}
{{- $_ := set $values.batch $name (include "baton.filled" (list $defaults.batch $batch) | fromJson) -}}
{{- end -}}
{{- if and (not $values.settings.profiles) (eq (len $values.models) 1) -}}
{{- $profile := dict "model" (keys $values.models | first) -}}
{{- $_ := set $values.settings "profiles" (dict $values.settings.defaultProfile $profile) -}}
{{- end -}}
{{- $_ := set $values "environment" $defaults.environment -}}
{{- $_ := include "baton.engineLoopCompleted" (list $values.engineLoop $defaults) -}}
{{- toJson $values -}}
{{- end -}}

{{/* A quantity of memory in bytes. */}}
{{- define "baton.bytes" -}}
{{- $units := dict "" 1 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 -}}
{{- $text := toString . -}}
{{- printf "%.0f" (mulf (regexFind "^[0-9.]+" $text | float64) (get $units (regexFind "[A-Za-z]*$" $text))) -}}
{{- end -}}

{{/* "true" where the store is a folder, which has to be mounted. Takes the complete values. */}}
{{- define "baton.hasIndex" -}}
{{- if and (eq .pipeline.store.kind "lancedb") (not (contains "://" .pipeline.store.uri)) -}}true{{- end -}}
{{- end -}}

{{/* What the engine of a model loads from the hub; empty: nothing. */}}
{{- define "baton.hubSource" -}}
{{- $loading := .engine.model_loading_config | default dict -}}
{{- $source := $loading.model_source | default $loading.model_id | default "" -}}
{{- if and (kindIs "string" $source) (not (regexMatch "^(/|s3://|gs://|abfss?://)" $source)) -}}{{- $source -}}{{- end -}}
{{- end -}}

{{/* (list application cached): what its steps load from the hub, as a JSON list; `cached`: what may come from the cache alone as well. */}}
{{- define "baton.hubSteps" -}}
{{- $cached := index . 1 -}}{{- $found := list -}}
{{- range (index . 0).stages -}}
{{- $backend := .backend | default dict -}}
{{- $source := .tokenizer | default (has $backend.kind (list "transformers" "extractive") | ternary $backend.source "") -}}
{{- $local := or .localFilesOnly $backend.localFilesOnly -}}
{{- if not (or (hasPrefix "/" $source) (and $local (not $cached))) -}}{{- $found = append $found $source -}}{{- end -}}
{{- end -}}
{{- toJson $found -}}
{{- end -}}

{{/* Everything that comes from the hub, as a JSON list. Takes the complete values. */}}
{{- define "baton.hubModels" -}}
{{- $found := .modelCache.preload.enabled | ternary .modelCache.preload.models list -}}
{{- range .models -}}{{- $found = append $found (include "baton.hubSource" .) -}}{{- end -}}
{{- range .applications -}}
{{- if .enabled -}}{{- $found = concat $found (include "baton.hubSteps" (list . false) | fromJsonArray) -}}{{- end -}}
{{- end -}}
{{- $embedder := .pipeline.embedder -}}
{{- if not (or (ne $embedder.kind "huggingface") $embedder.localFilesOnly (hasPrefix "/" $embedder.source)) -}}
{{- $found = append $found $embedder.source -}}
{{- end -}}
{{- compact $found | uniq | sortAlpha | toJson -}}
{{- end -}}
