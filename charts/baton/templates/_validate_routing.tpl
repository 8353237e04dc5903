{{/*
Routing and adapters: names that settings.profiles and models must hold, and weights that choose somebody.
*/}}
{{- define "baton.check.routing" -}}
{{- $values := index . 1 -}}{{- $settings := $values.settings -}}
{{- $models := keys $values.models -}}
{{- range $name, $adapters := $settings.adapters -}}
{{- if not (hasKey $values.models $name) }}
- settings.adapters names {{ $name }}, which models does not hold: it holds {{ $models | sortAlpha | join ", " }}.
{{- end -}}
{{- range $adapters }}{{ $models = append $models (printf "%s:%s" $name .) }}{{ end -}}
{{- end -}}
{{- range $name, $routing := $settings.routing -}}
{{- $where := printf "settings.routing.%s" $name -}}
{{- $variants := $routing.variants | default dict -}}
{{- if not (hasKey $settings.profiles $name) }}
- settings.routing names {{ $name }}, which settings.profiles does not hold: add it, or take it out of routing.
{{- end -}}
{{- $total := 0.0 -}}
{{- range $variant, $found := $variants -}}
{{- $total = addf $total (float64 ($found.weight | default 0)) -}}
{{- if and $found.model (not (has (toString $found.model) $models)) }}
- {{ $where }}.variants.{{ $variant }}.model names {{ $found.model }}, which models does not hold: it holds {{ $models | sortAlpha | join ", " }}.
{{- end -}}
{{- if and $found.profile (not (hasKey $settings.profiles (toString $found.profile))) }}
- {{ $where }}.variants.{{ $variant }}.profile names {{ $found.profile }}, which settings.profiles does not hold: add it or name another.
{{- end -}}
{{- if or (hasKey $settings.profiles $variant) (has $variant $models) }}
- {{ $where }}.variants.{{ $variant }} has the name of a profile or model: rename it.
{{- end -}}
{{- end -}}
{{- if and $variants (not (gt $total 0.0)) }}
- {{ $where }}: the weights of all variants are 0. Give one of them a weight.
{{- end -}}
{{- range $key := list "rules" "shadow" -}}
{{- range $place, $found := index $routing $key -}}
{{- if and $found.variant (not (hasKey $variants (toString $found.variant))) }}
- {{ $where }}.{{ $key }}[{{ $place }}].variant names {{ $found.variant }}, which {{ $where }}.variants does not hold: add it or name another.
{{- end -}}
{{- if and $found.model (not (has (toString $found.model) $models)) }}
- {{ $where }}.{{ $key }}[{{ $place }}].model names {{ $found.model }}, which models does not hold: it holds {{ $models | sortAlpha | join ", " }}.
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
