{{/* Whether the applications beside the pipeline name what is there. */}}
{{- define "baton.check.applications" -}}
{{- $values := index . 1 -}}
{{- range $name, $application := $values.applications -}}
{{- if $application.enabled -}}
{{- $place := printf "applications.%s" $name -}}
{{- $policy := $application.settings.policy -}}
{{- if and (ne $policy "default") (not (hasKey $values.settings.guardrail.policies $policy)) }}
- {{ $place }}.settings.policy names {{ $policy }}, which settings.guardrail.policies does not hold: add it or name another.
{{- end -}}
{{- if hasKey $values.settings.profiles $name }}
- {{ $place }} is served at /{{ $name }}, which hides the profile of that name: rename the profile.
{{- end -}}
{{- range $step, $shape := $application.stages -}}
{{- $own := printf "%s.stages.%s" $place $step -}}
{{- include "baton.check.deployment" (list (printf "%s.options" $own) $shape.options $shape.maxOngoingRequests) -}}
{{- range $key := list "max_ongoing_requests" "max_queued_requests" -}}
{{- if hasKey $shape.options $key }}
- {{ $own }}.options.{{ $key }}: use the key {{ $key | camelcase | untitle }} of the deployment itself.
{{- end -}}
{{- end -}}
{{- $backend := $shape.backend | default dict -}}
{{- $asked := $backend.application | default (printf "model-%s" $backend.source) -}}
{{- if and (eq ($backend.kind | default "") "model") (not (hasKey $values.models (trimPrefix "model-" $asked))) }}
- {{ $own }}.backend asks the application {{ $asked }}, which no model has: name one of {{ keys $values.models | sortAlpha | join ", " }} in source.
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
