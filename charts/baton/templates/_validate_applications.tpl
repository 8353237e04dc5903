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
{{- with $application.settings.summary -}}
{{- if gt (int .minTokens) (int .maxTokens) }}
- {{ $place }}.settings.summary.minTokens is {{ int .minTokens }}, more than maxTokens ({{ int .maxTokens }}): lower it.
{{- end -}}
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
{{- if and (eq ($backend.kind | default "") "model") (hasKey $backend "negativeLabels") -}}
{{- $negative := list -}}
{{- range $backend.negativeLabels -}}{{- $negative = append $negative (lower .) -}}{{- end -}}
{{- $stars := list "1 star" "2 stars" "3 stars" "4 stars" "5 stars" -}}
{{- $other := $negative -}}
{{- range $stars -}}{{- $other = without $other . -}}{{- end -}}
{{- if eq (len $other) (len $negative) }}
- {{ $own }}.backend.negativeLabels names none of the labels that a model gives: name some of {{ join ", " $stars }}.
{{- end -}}
{{- end -}}
{{- $asked := $backend.application | default (printf "model-%s" $backend.source) -}}
{{- if and (eq ($backend.kind | default "") "model") (not (hasKey $values.models (trimPrefix "model-" $asked))) }}
- {{ $own }}.backend asks the application {{ $asked }}, which no model has: name one of {{ keys $values.models | sortAlpha | join ", " }} in source.
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
