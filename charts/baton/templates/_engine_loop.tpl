{{/*
The own engine loop as an application of serveConfigV2. app/config/chart/engine_loop.py does the same in Python, and a
test holds them equal. Takes the complete values.
*/}}
{{- define "baton.engineLoopApplication" -}}
{{- $loop := .engineLoop -}}
{{- $shape := include "baton.filled" (list .engineLoopShape $loop.shape) | fromJson -}}
{{- $splicer := $shape.embeddings.options -}}
{{- $_ := set $shape "embeddings" (omit $shape.embeddings "options") -}}
{{- $live := merge (deepCopy $loop.settings) (pick .settings "limits" "guardrail" "auth" | deepCopy) -}}
{{- $deployments := list (include "baton.deployment" (list "engine_loop" $loop.options $live) | fromJson) -}}
{{- if $shape.embeddings.enabled -}}
{{- $deployments = append $deployments (include "baton.deployment" (list "splicer" $splicer nil) | fromJson) -}}
{{- end -}}
{{- $env := include "baton.filled" (list (.runtimeEnv.env_vars | default dict) $loop.env) | fromJson -}}
{{- dict "name" "engine-loop" "import_path" "app.main:build_engine_loop" "route_prefix" $loop.routePrefix "args" $shape
  "runtime_env" (set (deepCopy .runtimeEnv) "env_vars" $env) "deployments" $deployments | toJson -}}
{{- end -}}

{{/* Takes (list root values). */}}
{{- define "baton.check.engineLoop" -}}
{{- $loop := (index . 1).engineLoop -}}
{{- if and $loop.enabled (not $loop.shape) }}
- engineLoop.enabled needs engineLoop.shape, with model and source.
{{- end -}}
{{- include "baton.check.deployment" (list "engineLoop.options" $loop.options (int 4)) -}}
{{- if not (has $loop.settings.policy (append (keys (index . 1).settings.guardrail.policies) "default")) }}
- engineLoop.settings.policy names {{ $loop.settings.policy }}, which settings.guardrail.policies lacks.
{{- end -}}
{{- end -}}
