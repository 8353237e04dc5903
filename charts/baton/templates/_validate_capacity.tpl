{{/* Whether what Serve may start finds room in the worker groups. */}}

{{/* Pods that a group may have. Takes (list values group). */}}
{{- define "baton.pods" -}}
{{- $group := index . 1 -}}
{{- mul (int ((index . 0).autoscaling.enabled | ternary $group.maxReplicas $group.replicas)) (int $group.numOfHosts) -}}
{{- end -}}

{{/* Replicas that a deployment may have. Takes its options. */}}
{{- define "baton.replicas" -}}
{{- $autoscaling := .autoscaling_config | default dict -}}
{{- $autoscaling.max_replicas | default .num_replicas | default 1 | int -}}
{{- end -}}

{{/* GPUs of one replica of a model. Takes its engine. */}}
{{- define "baton.gpus" -}}
{{- $kwargs := .engine_kwargs | default dict -}}
{{- $world := mul (int ($kwargs.tensor_parallel_size | default 1)) (int ($kwargs.pipeline_parallel_size | default 1)) -}}
{{- $placement := .placement_group_config | default dict -}}
{{- if $placement.bundles -}}
{{- $total := 0.0 -}}
{{- range $placement.bundles -}}{{- $total = addf $total (float64 (.GPU | default 0)) -}}{{- end -}}
{{- $total -}}
{{- else if $placement.bundle_per_worker -}}
{{- mulf (float64 $world) (float64 ($placement.bundle_per_worker.GPU | default 0)) -}}
{{- else -}}
{{- $world -}}
{{- end -}}
{{- end -}}

{{/* Options of everything that has a deployment of its own beside the engines, by its place in the values, as JSON. */}}
{{- define "baton.placed" -}}
{{- $found := dict -}}
{{- range $name, $stage := .pipeline.stages -}}
{{- if eq ($stage.placement | default "deployment") "deployment" -}}{{- $_ := set $found (printf "pipeline.stages.%s" $name) $stage.options -}}{{- end -}}
{{- end -}}
{{- range $name, $application := .applications -}}
{{- if $application.enabled -}}
{{- range $step, $shape := $application.stages -}}
{{- $_ := set $found (printf "applications.%s.stages.%s" $name $step) (include "baton.stepOptions" $shape | fromJson) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if .engineLoop.enabled -}}
{{- $_ := set $found "engineLoop" .engineLoop.options -}}
{{- with (.engineLoop.shape | default dict).embeddings -}}
{{- if .enabled -}}{{- $_ := set $found "engineLoop.shape.embeddings" .options -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- toJson $found -}}
{{- end -}}

{{- define "baton.check.capacity" -}}
{{- $values := index . 1 -}}
{{- $wanted := 0.0 -}}{{- $there := 0.0 -}}
{{- range $values.workerGroups -}}
{{- $there = addf $there (mulf (float64 .gpus) (float64 (include "baton.pods" (list $values .)))) -}}
{{- end -}}
{{- $parts := list -}}
{{- range $name, $model := $values.models -}}
{{- include "baton.check.model" (list $values $name $model) -}}
{{- $gpus := mulf (include "baton.gpus" $model.engine | float64) (include "baton.replicas" $model.options | float64) -}}
{{- $wanted = addf $wanted $gpus -}}
{{- if $gpus -}}{{- $parts = append $parts (printf "models.%s %v" $name $gpus) -}}{{- end -}}
{{- end -}}
{{- range $place, $options := include "baton.placed" $values | fromJson -}}
{{- $gpus := mulf (float64 (($options.ray_actor_options | default dict).num_gpus | default 0)) (include "baton.replicas" $options | float64) -}}
{{- $wanted = addf $wanted $gpus -}}
{{- if $gpus -}}{{- $parts = append $parts (printf "%s %v" $place $gpus) -}}{{- end -}}
{{- end -}}
{{- if gt $wanted $there }}
- Serve may start replicas with {{ $wanted }} GPUs in all ({{ join ", " $parts }}), and the workerGroups have {{ $there }} at most{{ if not $values.autoscaling.enabled }} (autoscaling is off, so `replicas` counts){{ end }}: lower max_replicas, or raise the groups' pods.
{{- end -}}
{{- include "baton.check.cpus" $values -}}
{{- include "baton.check.resources" $values -}}
{{- end -}}

{{/* (list values name model): GPU kind, placement and ceiling of one model. */}}
{{- define "baton.check.model" -}}
{{- $values := index . 0 -}}{{- $name := index . 1 -}}{{- $engine := (index . 2).engine -}}
{{- $gpus := include "baton.gpus" $engine | float64 -}}
{{- $replicas := include "baton.replicas" (index . 2).options | int -}}
{{- $kind := $engine.accelerator_type | default "" -}}
{{- $strategy := ($engine.placement_group_config | default dict).strategy | default "PACK" -}}
{{- $kinds := list -}}{{- $largest := 0 -}}{{- $total := 0.0 -}}{{- $room := 0 -}}
{{- range $values.workerGroups -}}
{{- if .accelerator -}}{{- $kinds = append $kinds .accelerator -}}{{- end -}}
{{- if and .gpus (or (not $kind) (eq $kind .accelerator)) -}}
{{- $pods := include "baton.pods" (list $values .) | int -}}
{{- $largest = max $largest (int .gpus) -}}
{{- $total = addf $total (mulf (float64 .gpus) (float64 $pods)) -}}
{{- if $gpus -}}{{- $room = add $room (mul (divf (float64 .gpus) $gpus | floor | int) $pods) -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- if $gpus -}}
{{- if and $kind (not (has $kind $kinds)) }}
- models.{{ $name }}.engine.accelerator_type is {{ $kind }}, and no worker group has it as its accelerator{{ with $kinds }} (they have {{ join ", " . }}){{ end }}: set workerGroups[].accelerator, or accelerator_type to null.
{{- else if gt $gpus $total }}
- models.{{ $name }}: one replica takes {{ $gpus }} GPUs (tensor times pipeline parallel), and the workerGroups have {{ $total }} at most: make it smaller, or give them more pods or GPUs.
{{- else if and (eq $strategy "STRICT_PACK") (gt $gpus (float64 $largest)) }}
- models.{{ $name }}: one replica takes {{ $gpus }} GPUs and its placement_group_config.strategy is STRICT_PACK, on one node, while a pod has {{ $largest }}: use PACK to span pods, or larger pods.
{{- else -}}
{{- if or (gt $gpus (float64 $largest)) (eq $room 0) -}}{{- $room = divf $total $gpus | floor | int -}}{{- end -}}
{{- if gt $replicas (int $room) }}
- models.{{ $name }}: Serve may start {{ $replicas }} replicas of {{ $gpus }} GPUs each, and the workerGroups hold {{ $room }}{{ if not $values.autoscaling.enabled }} (autoscaling is off, so `replicas` counts){{ end }}: lower max_replicas, or raise the groups' pods.
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* CPUs that Ray hands out in a pod: what logicalCpus says, else the container's, rounded up. */}}
{{- define "baton.cpus" -}}
{{- $resources := .resources -}}
{{- $text := ($resources.limits | default dict).cpu | default ($resources.requests | default dict).cpu | default "0" | toString -}}
{{- if not (kindIs "invalid" .logicalCpus) -}}
{{- int .logicalCpus -}}
{{- else -}}
{{- include "baton.cores" $text | float64 | ceil | int -}}
{{- end -}}
{{- end -}}

{{- define "baton.check.cpus" -}}
{{- $there := include "baton.cpus" .head | float64 -}}
{{- $values := . -}}
{{- range .workerGroups -}}
{{- $there = addf $there (mulf (include "baton.cpus" . | float64) (include "baton.pods" (list $values .) | float64)) -}}
{{- end -}}
{{- $wanted := 0.0 -}}
{{- range $place, $options := include "baton.placed" . | fromJson -}}
{{- $cpus := ($options.ray_actor_options | default dict).num_cpus -}}
{{- $wanted = addf $wanted (mulf (float64 (kindIs "invalid" $cpus | ternary 1 $cpus)) (include "baton.replicas" $options | float64)) -}}
{{- end -}}
{{- range $name, $model := .models -}}
{{- $cpus := 1.0 -}}
{{- with ($model.engine.placement_group_config | default dict).bundles -}}
{{- $cpus = 0.0 -}}
{{- range . -}}{{- $cpus = addf $cpus (float64 (.CPU | default 0)) -}}{{- end -}}
{{- end -}}
{{- $wanted = addf $wanted (mulf $cpus (include "baton.replicas" $model.options | float64)) -}}
{{- end -}}
{{- if gt $wanted $there }}
- Serve may start replicas with {{ $wanted }} CPUs in all, and Ray hands out {{ $there }} at most: raise logicalCpus or the pods of a worker group, or lower num_cpus or max_replicas.
{{- end -}}
{{- end -}}

{{/* Resources of the user's own: what asks for one that no pod offers would wait for ever. */}}
{{- define "baton.check.resources" -}}
{{- $offered := dict -}}
{{- range prepend .workerGroups .head -}}{{- range $name, $amount := .rayResources -}}
{{- $_ := set $offered $name (maxf (float64 $amount) (get $offered $name | default 0 | float64)) -}}
{{- end -}}{{- end -}}
{{- range $place, $options := include "baton.placed" . | fromJson -}}
{{- include "baton.check.offered" (list $offered (printf "%s.options.ray_actor_options.resources" $place) ($options.ray_actor_options | default dict).resources) -}}
{{- end -}}
{{- range $name, $model := .models -}}
{{- include "baton.check.offered" (list $offered (printf "models.%s.options.ray_actor_options.resources" $name) ($model.options.ray_actor_options | default dict).resources) -}}
{{- range ($model.engine.placement_group_config | default dict).bundles -}}
{{- include "baton.check.offered" (list $offered (printf "models.%s.engine.placement_group_config.bundles" $name) .) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* (list offered place wanted) */}}
{{- define "baton.check.offered" -}}
{{- $offered := index . 0 -}}{{- $place := index . 1 -}}
{{- range $name, $amount := index . 2 -}}
{{- if not (or (has $name (list "CPU" "GPU" "memory" "object_store_memory" "baton-index")) (hasPrefix "accelerator_type:" $name)) -}}
{{- if not (hasKey $offered $name) }}
- {{ $place }}: no pod offers {{ $name }}{{ with keys $offered | sortAlpha }} (they offer {{ join ", " . }}){{ end }}: add it to rayResources of a worker group.
{{- else if gt (float64 $amount) (get $offered $name) }}
- {{ $place }}: {{ $amount }} of {{ $name }} are asked for, and a pod offers {{ get $offered $name }} at most: raise rayResources of a worker group.
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
