{{/* Settings and the store: what the applications would refuse at their start. Every check takes (list root values). */}}

{{- define "baton.check.settings" -}}
{{- $values := index . 1 -}}{{- $settings := $values.settings -}}{{- $limits := $settings.limits -}}
{{- if gt (float64 $limits.timeoutSeconds) (float64 $limits.maxTimeoutSeconds) }}
- settings.limits.timeoutSeconds is {{ $limits.timeoutSeconds }}, over maxTimeoutSeconds {{ $limits.maxTimeoutSeconds }}: lower the first or raise the second.
{{- end -}}
{{- if gt (int $limits.maxTopK) (int $limits.maxCandidates) }}
- settings.limits.maxTopK is {{ $limits.maxTopK }}, over maxCandidates {{ $limits.maxCandidates }}: lower the first or raise the second.
{{- end -}}
{{- range $key := list "maxTopK" "maxCandidates" "maxCollections" -}}
{{- if gt (get $limits $key | int) (get $settings.retriever $key | int) }}
- settings.limits.{{ $key }} is {{ get $limits $key }}, over settings.retriever.{{ $key }} {{ get $settings.retriever $key }}: change one of them.
{{- end -}}
{{- end -}}
{{- if gt (int $settings.assembler.minAnswerTokens) (int $settings.assembler.defaultMaxTokens) }}
- settings.assembler.minAnswerTokens is {{ $settings.assembler.minAnswerTokens }}, over defaultMaxTokens {{ $settings.assembler.defaultMaxTokens }}: lower the first or raise the second.
{{- end -}}
{{- range $name := keys $settings.modelCapacity | sortAlpha -}}
{{- if not (hasKey $values.models $name) }}
- settings.modelCapacity names {{ $name }}, which models does not hold: it holds {{ keys $values.models | sortAlpha | join ", " }}.
{{- end -}}
{{- end -}}
{{- range $name, $policy := $settings.guardrail.policies -}}
{{- $seen := list -}}
{{- range $policy.patterns -}}
{{- if has .name $seen }}
- settings.guardrail.policies.{{ $name }}: two patterns are called {{ .name }}: give each its own name.
{{- end -}}
{{- $seen = append $seen .name -}}
{{- end -}}
{{- end -}}
{{- range $name, $profile := $settings.profiles -}}
{{- include "baton.check.profile" (list $values $name $profile) -}}
{{- end -}}
{{- if hasKey $values.models "embedder" }}
- models.embedder: the gateway offers the retriever's embedder under this name: choose another.
{{- end -}}
{{- end -}}

{{/* (list values name profile) */}}
{{- define "baton.check.profile" -}}
{{- $values := index . 0 -}}{{- $name := index . 1 -}}{{- $profile := index . 2 -}}{{- $limits := $values.settings.limits -}}
{{- if has $name (list "v1" "static" "embedder") }}
- settings.profiles.{{ $name }}: the gateway itself uses this name: choose another.
{{- end -}}
{{- $retrieval := $profile.retrieval | default dict -}}
{{- $topK := $retrieval.topK | default 4 | int -}}{{- $candidates := $retrieval.candidates | default 64 | int -}}
{{- if gt $topK $candidates }}
- settings.profiles.{{ $name }}.retrieval.topK is {{ $topK }}, over candidates {{ $candidates }}: lower the first or raise the second.
{{- end -}}
{{- $model := get $values.models (toString $profile.model) | default dict -}}
{{- $tokens := min (int $limits.maxTokens) (int ($model.contextTokens | default $limits.maxTokens)) -}}
{{- $capped := dict
  "nCandidates" (list ($profile.nCandidates | default 1) $limits.maxN "settings.limits.maxN")
  "sampling.maxTokens" (list (($profile.sampling | default dict).maxTokens | default 1) $tokens "settings.limits.maxTokens or the model's window")
  "retrieval.topK" (list $topK $limits.maxTopK "settings.limits.maxTopK")
  "retrieval.candidates" (list $candidates $limits.maxCandidates "settings.limits.maxCandidates")
  "retrieval.collections" (list ($retrieval.collections | default list | len) $limits.maxCollections "settings.limits.maxCollections") -}}
{{- range $key, $found := $capped -}}
{{- if gt (index $found 0 | int) (index $found 1 | int) }}
- settings.profiles.{{ $name }}.{{ $key }} is {{ index $found 0 }}, over {{ index $found 2 }} of {{ index $found 1 }}: lower the first or raise the second.
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "baton.check.store" -}}
{{- $values := index . 1 -}}{{- $store := $values.pipeline.store -}}{{- $chunking := $values.pipeline.chunking -}}
{{- if gt (mul 2 (int $chunking.overlapTokens)) (int $chunking.sizeTokens) }}
- pipeline.chunking.overlapTokens is {{ $chunking.overlapTokens }}, more than half of sizeTokens {{ $chunking.sizeTokens }}: lower the first or raise the second.
{{- end -}}
{{- $schemes := get (dict "lancedb" (list "s3" "s3+ddb" "gs" "az" "abfs" "abfss" "file" "db" "memory" "shared-memory") "pgvector" (list "postgresql" "postgres") "qdrant" (list "http" "https")) $store.kind -}}
{{- if and (contains "://" $store.uri) (not (has (splitList "://" $store.uri | first) $schemes)) }}
- pipeline.store.uri begins with {{ splitList "://" $store.uri | first }}://, which {{ $store.kind }} does not read: it reads {{ join "://, " $schemes }}://.
{{- end -}}
{{- if and $store.secretEnv $store.secretFile }}
- pipeline.store names secretEnv and secretFile: drop one of them.
{{- end -}}
{{- if and $store.secretEnv (not (or (hasKey $values.secretEnv $store.secretEnv) (hasKey $values.env $store.secretEnv))) }}
- pipeline.store.secretEnv reads {{ $store.secretEnv }}, which no pod gets: add it to secretEnv.
{{- end -}}
{{- if and $store.storageOptions (ne $store.kind "lancedb") }}
- pipeline.store.storageOptions are read with kind lancedb only: drop them.
{{- end -}}
{{- end -}}
