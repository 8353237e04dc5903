{{/* Options of deployments, models and profiles. Every check takes (list root values). */}}

{{/* (list place options maxOngoing): faults in one deployment's options under Ray's names. */}}
{{- define "baton.check.deployment" -}}
{{- $place := index . 0 -}}{{- $options := index . 1 -}}
{{- $given := list (list "" $options) (list "autoscaling_config." ($options.autoscaling_config | default dict)) -}}
{{- $instead := dict "max_concurrent_queries" "max_ongoing_requests" "target_num_ongoing_requests_per_replica" "target_ongoing_requests" "smoothing_factor" "upscaling_factor and downscaling_factor" "upscale_smoothing_factor" "upscaling_factor" "downscale_smoothing_factor" "downscaling_factor" "metrics_interval_s" "the environment variables RAY_SERVE_REPLICA_AUTOSCALING_METRIC_PUSH_INTERVAL_S and RAY_SERVE_HANDLE_AUTOSCALING_METRIC_PUSH_INTERVAL_S" -}}
{{- range $part := $given -}}
{{- range $name, $replacement := $instead -}}
{{- if hasKey (index $part 1) $name }}
- {{ $place }}.{{ index $part 0 }}{{ $name }} is deprecated in Ray: use {{ $replacement }}.
{{- end -}}
{{- end -}}
{{- end -}}
{{- with $options.autoscaling_config -}}
{{- if not (kindIs "invalid" $options.num_replicas) }}
- {{ $place }}: num_replicas and autoscaling_config exclude each other; drop one of them.
{{- end -}}
{{- if gt (int .min_replicas) (int .max_replicas) }}
- {{ $place }}.autoscaling_config: min_replicas {{ .min_replicas }} is above max_replicas {{ .max_replicas }}; change one of them.
{{- end -}}
{{- $initial := kindIs "invalid" .initial_replicas | ternary .min_replicas .initial_replicas | int -}}
{{- if or (lt $initial (int .min_replicas)) (gt $initial (int .max_replicas)) }}
- {{ $place }}.autoscaling_config: initial_replicas {{ $initial }} lies outside of min_replicas {{ .min_replicas }} to max_replicas {{ .max_replicas }}; change one of them.
{{- end -}}
{{- if gt (float64 .target_ongoing_requests) (float64 (index $ 2)) }}
- {{ $place }}: a replica takes {{ index $ 2 }} requests at once, and autoscaling_config.target_ongoing_requests is {{ .target_ongoing_requests }}: load never reaches the target, so no replica is ever added. Raise the first or lower the second.
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "baton.check.options" -}}
{{- $values := index . 1 -}}
{{- range $name, $model := $values.models -}}
{{- include "baton.check.deployment" (list (printf "models.%s.options" $name) $model.options ($model.options.max_ongoing_requests | default 5)) -}}
{{- end -}}
{{- range $name, $stage := $values.pipeline.stages -}}
{{- include "baton.check.deployment" (list (printf "pipeline.stages.%s.options" $name) $stage.options $stage.maxOngoingRequests) -}}
{{- range $own := list "max_ongoing_requests" "max_queued_requests" -}}
{{- if hasKey $stage.options $own }}
- pipeline.stages.{{ $name }}.options.{{ $own }}: use the key {{ $own | camelcase | untitle }} of the stage itself.
{{- end -}}
{{- end -}}
{{- if and $stage.options (eq ($stage.placement | default "deployment") "gateway") }}
- pipeline.stages.{{ $name }}.options are read with placement: deployment only; drop them or change the placement.
{{- end -}}
{{- $grace := $stage.options.graceful_shutdown_timeout_s | default 20 -}}
{{- if ge (float64 $grace) (float64 $values.upgrade.terminationGracePeriodSeconds) }}
- pipeline.stages.{{ $name }}.options.graceful_shutdown_timeout_s is {{ $grace }}, and a stopping pod is killed after upgrade.terminationGracePeriodSeconds {{ $values.upgrade.terminationGracePeriodSeconds }}: make the second larger.
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "baton.check.models" -}}
{{- $values := index . 1 -}}
{{- range $name, $model := $values.models -}}
{{- $place := printf "models.%s" $name -}}
{{- $kwargs := $model.engine.engine_kwargs | default dict -}}
{{- if not ($model.engine.model_loading_config | default dict).model_id }}
- {{ $place }}.engine.model_loading_config.model_id is missing: name the model.
{{- end -}}
{{- if and $kwargs.max_model_len (gt (int $model.contextTokens) (int $kwargs.max_model_len)) }}
- {{ $place }}.contextTokens is {{ $model.contextTokens }}, over the engine's max_model_len of {{ $kwargs.max_model_len }}: lower the first, or leave it out.
{{- end -}}
{{- if and (kindIs "map" ($model.engine.model_loading_config | default dict).model_source) (eq $model.tokenizer $model.engine.model_loading_config.model_id) }}
- {{ $place }}.engine.model_loading_config.model_source is a bucket, which only the engine reads: name a folder, or an id of the hub, as {{ $place }}.tokenizer.
{{- else if contains "://" $model.tokenizer }}
- {{ $place }}.tokenizer would be {{ $model.tokenizer }}, which only the engine reads: name a folder, or an id of the hub, as {{ $place }}.tokenizer.
{{- end -}}
{{- $tensor := $kwargs.tensor_parallel_size | default 1 | int -}}
{{- if not (has $tensor (list 1 2 4 8 16 32 64)) }}
- {{ $place }}.engine.engine_kwargs.tensor_parallel_size is {{ $tensor }}, and a model's attention heads (32, 64, …) are not divided by it: use 1, 2, 4, 8 or 16.
{{- end -}}
{{- $grace := $model.options.graceful_shutdown_timeout_s | default (hasKey $model.options "autoscaling_config" | ternary 90 20) -}}
{{- if ge (float64 $grace) (float64 $values.upgrade.terminationGracePeriodSeconds) }}
- {{ $place }}.options.graceful_shutdown_timeout_s is {{ $grace }}, and a stopping pod is killed after upgrade.terminationGracePeriodSeconds {{ $values.upgrade.terminationGracePeriodSeconds }}: make the second larger.
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "baton.check.profiles" -}}
{{- $values := index . 1 -}}{{- $settings := $values.settings -}}
{{- $names := keys $values.models | sortAlpha | join ", " -}}
{{- if not $settings.profiles }}
- settings.profiles is empty and there are {{ len $values.models }} models ({{ $names }}): name a profile for each that is to be asked.
{{- else if not (hasKey $settings.profiles $settings.defaultProfile) }}
- settings.defaultProfile names {{ $settings.defaultProfile }}, which settings.profiles does not hold: add it or name another.
{{- end -}}
{{- if not (hasKey $settings.priorities $settings.defaultPriority) }}
- settings.defaultPriority names {{ $settings.defaultPriority }}, which settings.priorities does not hold: add it or name another.
{{- end -}}
{{- range $name, $profile := $settings.profiles -}}
{{- if not (hasKey $values.models (splitList ":" (toString $profile.model) | first)) }}
- settings.profiles.{{ $name }}.model names {{ $profile.model }}, which models does not hold: it holds {{ $names }}.
{{- end -}}
{{- if hasKey $values.models $name }}
- {{ $name }} is the name of a model and of a profile: rename one of them.
{{- end -}}
{{- $policy := $profile.policy | default "default" -}}
{{- if and (ne $policy "default") (not (hasKey $settings.guardrail.policies $policy)) }}
- settings.profiles.{{ $name }}.policy names {{ $policy }}, which settings.guardrail.policies does not hold: add it or name another.
{{- end -}}
{{- $retrieval := $profile.retrieval | default dict -}}
{{- if and $retrieval.enabled (not $retrieval.collections) }}
- settings.profiles.{{ $name }}.retrieval is enabled and names no collections: name one.
{{- end -}}
{{- end -}}
{{- end -}}
