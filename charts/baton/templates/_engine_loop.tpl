{{/*
The own engine loop as an application of serveConfigV2. app/config/chart/engine_loop.py does the same in Python, and a
test holds them equal. Takes the complete values.
*/}}
{{- define "baton.engineLoopApplication" -}}
{{- $loop := .engineLoop -}}
{{- $splicer := $loop.shape.embeddings.options -}}
{{- $shape := set (deepCopy $loop.shape) "embeddings" (omit $loop.shape.embeddings "options") -}}
{{- $live := merge (deepCopy $loop.settings) (pick .settings "limits" "guardrail" "auth" "traces" | deepCopy) -}}
{{- $deployments := list (include "baton.deployment" (list "engine_loop" $loop.options $live) | fromJson) -}}
{{- if $shape.embeddings.enabled -}}
{{- $deployments = append $deployments (include "baton.deployment" (list "splicer" $splicer nil) | fromJson) -}}
{{- end -}}
{{- $env := include "baton.filled" (list (.runtimeEnv.env_vars | default dict) $loop.env) | fromJson -}}
{{- dict "name" "engine-loop" "import_path" "app.main:build_engine_loop" "route_prefix" $loop.routePrefix "args" $shape
  "runtime_env" (set (deepCopy .runtimeEnv) "env_vars" $env) "deployments" $deployments | toJson -}}
{{- end -}}

{{/* (list loop defaults): fills in what the shape and the options lack. */}}
{{- define "baton.engineLoopCompleted" -}}
{{- $loop := index . 0 -}}{{- $defaults := index . 1 -}}
{{- $_ := set $loop "options" (include "baton.options" (list $loop.options $defaults.autoscaling false) | fromJson) -}}
{{- if $loop.shape -}}
{{- $shape := include "baton.filled" (list $defaults.engineLoopShape $loop.shape) | fromJson -}}
{{- $options := include "baton.options" (list $shape.embeddings.options $defaults.autoscaling false) | fromJson -}}
{{- $_ := set $shape.embeddings "options" $options -}}
{{- $_ := set $loop "shape" $shape -}}
{{- end -}}
{{- end -}}

{{/* Takes (list root values). */}}
{{- define "baton.check.engineLoop" -}}
{{- $loop := (index . 1).engineLoop -}}
{{- if and $loop.enabled (not $loop.shape) }}
- engineLoop.enabled needs engineLoop.shape, with model and source.
{{- end -}}
{{- with $loop.shape -}}
{{- $most := mul 4 (add (.engine.max_num_seqs | default 32) .maxWaiting) -}}
{{- include "baton.check.deployment" (list "engineLoop.options" $loop.options $most) -}}
{{- include "baton.check.deployment" (list "engineLoop.shape.embeddings.options" .embeddings.options $most) -}}
{{- end -}}
{{- if not (has $loop.settings.policy (append (keys (index . 1).settings.guardrail.policies) "default")) }}
- engineLoop.settings.policy names {{ $loop.settings.policy }}, which settings.guardrail.policies lacks.
{{- end -}}
{{- end -}}
