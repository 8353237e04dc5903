{{/*
serveConfigV2 from the complete values. app/config/chart/serve.py does the same in Python, and a test holds them equal.
It is JSON inside YAML: every string is quoted, so no reader takes "no", "1e5" or "0123" for something else (case C05).
*/}}

{{/* Jobs that a deployment takes, at work and waiting; empty: any number. Serve's own defaults are 1, 5 and -1. */}}
{{- define "baton.capacity" -}}
{{- $queued := hasKey . "max_queued_requests" | ternary .max_queued_requests -1 | int -}}
{{- if ge $queued 0 -}}
{{- $replicas := (.autoscaling_config | default dict).max_replicas | default .num_replicas | default 1 -}}
{{- add (mul (int $replicas) (int (.max_ongoing_requests | default 5))) $queued -}}
{{- end -}}
{{- end -}}

{{/* (list name options userConfig): one entry of `deployments`. */}}
{{- define "baton.deployment" -}}
{{- $found := deepCopy (index . 1) -}}
{{- $_ := set $found "name" (index . 0) -}}
{{- if index . 2 -}}{{- $_ := set $found "user_config" (index . 2) -}}{{- end -}}
{{- toJson $found -}}
{{- end -}}

{{- define "baton.modelApplication" -}}
{{- $name := index . 0 -}}{{- $model := index . 1 -}}{{- $common := index . 2 -}}
{{- $env := include "baton.filled" (list ($common.env_vars | default dict) $model.env) | fromJson -}}
{{- $runtime := set (deepCopy $common) "env_vars" $env -}}
{{- /* Time for the answers that a replica is writing when load takes it away; Serve's 20 s would cut off long ones. */ -}}
{{- $patience := hasKey $model.options "autoscaling_config" | ternary (dict "graceful_shutdown_timeout_s" 90) dict -}}
{{- $options := merge (deepCopy $model.options) $patience -}}
{{- $deployment := include "baton.deployment" (list "generator" $options nil) | fromJson -}}
{{- dict "name" (printf "model-%s" $name) "import_path" "app.main:build_model" "route_prefix" nil "args" $model.engine
  "runtime_env" $runtime "deployments" (list $deployment) | toJson -}}
{{- end -}}

{{/* The stages' options: new replicas serve before old ones stop, and those that open the index run where it is mounted. */}}
{{- define "baton.stageOptions" -}}
{{- $stages := .pipeline.stages -}}
{{- $options := dict -}}
{{- range $name, $stage := $stages -}}
{{- $own := deepCopy $stage.options -}}
{{- if not (or ($own.ray_actor_options | default dict).num_gpus (hasKey $own "max_surge_percent")) -}}{{- $_ := set $own "max_surge_percent" 100 -}}{{- end -}}
{{- $_ := set $options $name $own -}}
{{- end -}}
{{- if include "baton.hasIndex" . -}}
{{- $holder := eq $stages.retriever.placement "deployment" | ternary "retriever" "gateway" -}}
{{- $actor := (get $options $holder).ray_actor_options | default dict -}}
{{- $_ := set $actor "resources" (set ($actor.resources | default dict) "baton-index" 0.001) -}}
{{- $_ := set (get $options $holder) "ray_actor_options" $actor -}}
{{- end -}}
{{- toJson $options -}}
{{- end -}}

{{- define "baton.pipelineApplication" -}}
{{- $values := . -}}
{{- $options := include "baton.stageOptions" $values | fromJson -}}
{{- $args := deepCopy $values.pipeline -}}
{{- range $name, $stage := $args.stages -}}{{- $_ := set $stage "options" dict -}}{{- end -}}
{{- $served := dict -}}{{- $known := dict -}}
{{- range $name, $model := $values.models -}}
{{- $_ := set $served $name (omit $model "engine" "env" "options" | merge (dict "application" (printf "model-%s" $name) "localFilesOnly" $values.modelCache.offline)) -}}
{{- with include "baton.capacity" $model.options -}}{{- $_ := set $known $name (int .) -}}{{- end -}}
{{- end -}}
{{- $_ := set $args "models" $served -}}
{{- $settings := deepCopy $values.settings -}}
{{- $_ := set $settings "modelCapacity" (include "baton.filled" (list $known $settings.modelCapacity) | fromJson) -}}
{{- $deployments := list (include "baton.deployment" (list "gateway" $options.gateway $settings) | fromJson) -}}
{{- range $name := list "guardrail" "retriever" "assembler" "postprocessor" -}}
{{- if eq (get $args.stages $name).placement "deployment" -}}
{{- $live := deepCopy (get $settings $name) -}}
{{- if $settings.traces.endpoint -}}{{- $_ := set $live "traces" $settings.traces -}}{{- end -}}
{{- $entry := include "baton.deployment" (list $name (get $options $name) $live) | fromJson -}}
{{- $deployments = append $deployments $entry -}}
{{- end -}}
{{- end -}}
{{- $application := dict "name" "pipeline" "import_path" "app.main:build_pipeline" "route_prefix" "/" "args" $args
  "deployments" $deployments -}}
{{- if $values.runtimeEnv -}}{{- $_ := set $application "runtime_env" $values.runtimeEnv -}}{{- end -}}
{{- toJson $application -}}
{{- end -}}

{{/* Options of an application's deployment, with its number of replicas where they say none. */}}
{{- define "baton.stepOptions" -}}
{{- $options := deepCopy .options -}}
{{- if not (or (hasKey $options "num_replicas") (hasKey $options "autoscaling_config")) -}}{{- $_ := set $options "num_replicas" .replicas -}}{{- end -}}
{{- toJson $options -}}
{{- end -}}

{{/*
(list name application values): an application beside the pipeline. Its ingress, which has its name, takes limits, keys,
guardrail and traces from the pipeline's settings; its steps take the traces.
*/}}
{{- define "baton.application" -}}
{{- $name := index . 0 -}}{{- $application := index . 1 -}}{{- $values := index . 2 -}}
{{- $live := merge (deepCopy $application.settings) (pick (deepCopy $values.settings) "limits" "auth" "guardrail" "traces") -}}
{{- $args := dict -}}{{- $deployments := list -}}
{{- range $step, $shape := $application.stages -}}
{{- $_ := set $args $step (omit $shape "replicas" "options") -}}
{{- $options := include "baton.stepOptions" $shape | fromJson -}}
{{- if not (or ($options.ray_actor_options | default dict).num_gpus (hasKey $options "max_surge_percent")) -}}{{- $_ := set $options "max_surge_percent" 100 -}}{{- end -}}
{{- $own := eq $step $name | ternary $live (dict "traces" $values.settings.traces) -}}
{{- $deployments = append $deployments (include "baton.deployment" (list $step $options $own) | fromJson) -}}
{{- end -}}
{{- $found := dict "name" $name "import_path" (printf "app.main:build_%s" $name) "route_prefix" (printf "/%s" $name)
  "args" $args "deployments" $deployments -}}
{{- if $values.runtimeEnv -}}{{- $_ := set $found "runtime_env" $values.runtimeEnv -}}{{- end -}}
{{- toJson $found -}}
{{- end -}}

{{- define "baton.serveConfig" -}}
{{- $values := . -}}
{{- $applications := list -}}
{{- range $name, $model := $values.models -}}
{{- $application := include "baton.modelApplication" (list $name $model $values.runtimeEnv) | fromJson -}}
{{- $applications = append $applications $application -}}
{{- end -}}
{{- $applications = append $applications (include "baton.pipelineApplication" $values | fromJson) -}}
{{- range $name, $application := $values.applications -}}
{{- if $application.enabled -}}{{- $applications = append $applications (include "baton.application" (list $name $application $values) | fromJson) -}}{{- end -}}
{{- end -}}
{{- if $values.engineLoop.enabled -}}
{{- $applications = append $applications (include "baton.engineLoopApplication" $values | fromJson) -}}
{{- end -}}
{{- $config := dict "proxy_location" "EveryNode" "http_options" (dict "host" "0.0.0.0" "port" 8000)
  "logging_config" (dict "encoding" $values.settings.logs.encoding "log_level" $values.settings.logs.level "enable_access_log" false)
  "applications" $applications -}}
{{- if $values.grpc.enabled -}}
{{- $_ := set $config "grpc_options" (dict "port" (int $values.grpc.port) "grpc_servicer_functions" (list "app.deployments.rpc_proxy:add_to_server")) -}}
{{- end -}}
{{- toPrettyJson $config -}}
{{- end -}}
