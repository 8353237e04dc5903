{{/* Whether the Job of a rollout has what it needs. */}}

{{- define "baton.check.rollout" -}}
{{- $values := index . 1 -}}{{- $rollout := $values.rollout -}}
{{- if $rollout.enabled -}}
{{- if not $rollout.plan }}
- rollout.enabled needs rollout.plan: from which variant to which, in what steps, judged by what.
{{- else if $rollout.plan.blueGreen }}
- rollout.plan.blueGreen: the Job may not count the cluster's GPUs. Run it yourself, `python -m app.ops.rollout blue-green`.
{{- end -}}
{{- with $rollout.plan -}}
{{- $variants := (get $values.settings.routing .profile | default dict).variants | default dict -}}
{{- range $name := list .stable .canary -}}
{{- if not (hasKey $variants $name) }}
- rollout.plan names the variant {{ $name }}, which settings.routing.{{ $rollout.plan.profile }}.variants does not hold: add it there (the canary with weight 0), or correct the plan.
{{- end -}}
{{- end -}}
{{- end -}}
{{- if not $rollout.prometheusUrl }}
- rollout.enabled needs rollout.prometheusUrl, the address of the Prometheus that scrapes the release.
{{- end -}}
{{- if and $values.networkPolicy.egress (not $values.networkPolicy.egressTo) }}
- networkPolicy.egress cuts the rollout's Job off the Kubernetes API and Prometheus: allow them in networkPolicy.egressTo.
{{- end -}}
{{- end -}}
{{- end -}}
