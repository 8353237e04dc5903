{{/* The pods: memory, parameters, volumes. Every check takes (list root values). */}}

{{- define "baton.check.groups" -}}
{{- $values := index . 1 -}}
{{- include "baton.check.pod" (list "head" $values.head) -}}
{{- include "baton.check.volumes" (list "head" $values $values.head) -}}
{{- if not $values.workerGroups }}
- workerGroups is empty: name at least one group.
{{- end -}}
{{- range $values.workerGroups -}}
{{- $place := printf "workerGroups %s" .name -}}
{{- include "baton.check.pod" (list $place .) -}}
{{- include "baton.check.volumes" (list $place $values .) -}}
{{- if or (lt (int .replicas) (int .minReplicas)) (gt (int .replicas) (int .maxReplicas)) }}
- {{ $place }}: replicas {{ .replicas }} lies outside of minReplicas {{ .minReplicas }} to maxReplicas {{ .maxReplicas }}: change one of them.
{{- end -}}
{{- if and (not (kindIs "invalid" .idleTimeoutSeconds)) (not (and $values.autoscaling.enabled (eq $values.autoscaling.version "v2"))) }}
- {{ $place }}: idleTimeoutSeconds is read by Ray's autoscaler v2 alone: set autoscaling.enabled and autoscaling.version v2, or drop it.
{{- end -}}
{{- if and .accelerator (not .gpus) }}
- {{ $place }}: accelerator is {{ .accelerator }} and gpus is 0: set gpus.
{{- end -}}
{{- $room := sub (include "baton.bytes" .sharedMemory | int64) (include "baton.bytes" .objectStore | int64) -}}
{{- $handoff := $values.pipeline.handoff -}}
{{- if and (eq $handoff.path "arena") (or .index (not (include "baton.hasIndex" $values))) (lt $room (int64 $handoff.slotBytes)) }}
- {{ $place }}: sharedMemory {{ .sharedMemory }} leaves {{ $room }} bytes beside objectStore {{ .objectStore }}, and one slot of the hand-off takes pipeline.handoff.slotBytes {{ int64 $handoff.slotBytes }}: raise sharedMemory.
{{- end -}}
{{- end -}}
{{- end -}}

{{/* (list place values pod): names and places of volumes, which Kubernetes wants to differ. */}}
{{- define "baton.check.volumes" -}}
{{- $place := index . 0 -}}{{- $values := index . 1 -}}{{- $pod := index . 2 -}}
{{- $names := list "shared-mem" "tmp" "index" "models" "log-collector" "log-positions" "batch" "batch-serve" -}}
{{- range $pod.volumes -}}
{{- if has .name $names }}
- {{ $place }}: the name {{ .name }} in volumes is used twice or belongs to the chart: choose another.
{{- end -}}
{{- $names = append $names .name -}}
{{- end -}}
{{- $paths := list "/dev/shm" "/tmp" $values.index.mountPath $values.modelCache.mountPath -}}
{{- range $pod.volumeMounts -}}
{{- if not (has .name $names) }}
- {{ $place }}: volumeMounts names {{ .name }}, and no volume is called that: add it to volumes.
{{- end -}}
{{- if has .mountPath $paths }}
- {{ $place }}: something is mounted at {{ .mountPath }} already: choose another mountPath in volumeMounts.
{{- end -}}
{{- $paths = append $paths .mountPath -}}
{{- end -}}
{{- end -}}

{{/* CPUs of a quantity. */}}
{{- define "baton.cores" -}}
{{- hasSuffix "m" . | ternary (divf (trimSuffix "m" . | float64) 1000.0) (float64 .) -}}
{{- end -}}

{{/* (list place pod) */}}
{{- define "baton.check.pod" -}}
{{- $place := index . 0 -}}{{- $pod := index . 1 -}}
{{- $limits := $pod.resources.limits | default dict -}}{{- $requests := $pod.resources.requests | default dict -}}
{{- $store := include "baton.bytes" $pod.objectStore | int64 -}}
{{- $shared := include "baton.bytes" $pod.sharedMemory | int64 -}}
{{- if gt $store $shared }}
- {{ $place }}: objectStore {{ $pod.objectStore }} is larger than sharedMemory {{ $pod.sharedMemory }}, in which it lies: raise sharedMemory or lower objectStore.
{{- end -}}
{{- if lt $store 78643200 }}
- {{ $place }}: objectStore {{ $pod.objectStore }} is less than Ray's least of 75Mi: raise it.
{{- end -}}
{{- if not $limits.memory }}
- {{ $place }}: resources.limits.memory is missing, and Ray sizes itself by it: set it.
{{- else -}}
{{- $memory := include "baton.bytes" $limits.memory | int64 -}}
{{- if ge $shared $memory }}
- {{ $place }}: sharedMemory {{ $pod.sharedMemory }} counts as memory of the pod and leaves nothing of resources.limits.memory {{ $limits.memory }}: lower it or raise the limit.
{{- end -}}
{{- with $requests.memory -}}
{{- if gt (include "baton.bytes" . | int64) $memory }}
- {{ $place }}: resources.requests.memory {{ . }} is above resources.limits.memory {{ $limits.memory }}: lower it.
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $name, $value := merge (dict) $limits $requests -}}
{{- if contains "gpu" $name }}
- {{ $place }}: resources name {{ $name }}: use gpus (and gpuResource), which the checks of capacity read.
{{- end -}}
{{- end -}}
{{- range $kind, $resources := dict "requests" $requests "limits" $limits -}}
{{- if and $resources.cpu (not (regexMatch "^[0-9.]+m?$" $resources.cpu)) }}
- {{ $place }}: resources.{{ $kind }}.cpu is {{ $resources.cpu }}: write a number of CPUs, or thousandths like 500m.
{{- end -}}
{{- end -}}
{{- if and $requests.cpu $limits.cpu (gt (include "baton.cores" $requests.cpu | float64) (include "baton.cores" $limits.cpu | float64)) }}
- {{ $place }}: resources.requests.cpu {{ $requests.cpu }} is above resources.limits.cpu {{ $limits.cpu }}: lower it.
{{- end -}}
{{- $instead := dict "CPU" "logicalCpus" "GPU" "gpus" "memory" "resources.limits.memory" "object_store_memory" "objectStore" "baton-index" "index" -}}
{{- range $name, $amount := $pod.rayResources -}}
{{- with get $instead $name }}
- {{ $place }}: rayResources.{{ $name }} is set by the chart: use {{ . }}.
{{- end -}}
{{- end -}}
{{- $instead := dict "num-cpus" "logicalCpus" "num-gpus" "gpus" "memory" "resources.limits.memory" "resources" "rayResources, gpus, accelerator and index" "labels" "rayLabels" "object-store-memory" "objectStore" "redis-password" "gcsFaultTolerance.passwordSecret" "redis-username" "gcsFaultTolerance.username" -}}
{{- range $name, $value := $pod.rayStartParams -}}
{{- with get $instead $name }}
- {{ $place }}: rayStartParams.{{ $name }} is set by the chart: use {{ . }}.
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "baton.check.index" -}}
{{- $values := index . 1 -}}
{{- if include "baton.hasIndex" $values -}}
{{- $uri := $values.pipeline.store.uri -}}{{- $index := $values.index -}}
{{- if not (hasPrefix (printf "%s/" $index.mountPath) (printf "%s/" $uri)) }}
- pipeline.store.uri is {{ $uri }}, outside of the volume at index.mountPath {{ $index.mountPath }}: put it inside.
{{- end -}}
{{- if has $index.mountPath (list "/tmp" "/dev/shm" "/opt/baton") }}
- index.mountPath is {{ $index.mountPath }}, where something else lies: choose a folder of its own, such as /data.
{{- end -}}
{{- if and (eq $index.kind "claim") (eq $index.claim.accessMode "ReadOnlyMany") }}
- index.claim.accessMode is ReadOnlyMany, and the index is written to: use ReadWriteMany, or ReadWriteOnce with one pod.
{{- end -}}
{{- $pods := 0 -}}
{{- range $values.workerGroups -}}
{{- if .index -}}{{- $pods = add $pods (include "baton.pods" (list $values .) | int) -}}{{- end -}}
{{- end -}}
{{- if eq (int $pods) 0 }}
- No worker group mounts the index, and the retriever runs only where it is: set index: true on one with pods.
{{- end -}}
{{- if gt (int $pods) 1 -}}
{{- if eq $index.kind "pod" }}
- index.kind pod with {{ $pods }} pods that mount it would give each an index of its own: use claim, or set index: false on groups without the retriever.
{{- else if and (hasPrefix "ReadWriteOnce" $index.claim.accessMode) (not $index.claim.singleNode) }}
- index.claim.accessMode {{ $index.claim.accessMode }} serves one node, and {{ $pods }} pods mount the index: use ReadWriteMany, a store in object storage (pipeline.store.uri s3://…), index: false on groups without the retriever, or claim.singleNode on a cluster of one node.
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "baton.check.modelCache" -}}
{{- $values := index . 1 -}}{{- $cache := $values.modelCache -}}
{{- if and (eq $cache.kind "hostPath") (not (hasPrefix "/" $cache.hostPath)) }}
- modelCache.kind hostPath needs modelCache.hostPath, a folder of the nodes.
{{- end -}}
{{- if and (eq $cache.kind "image") (not $cache.image.reference) }}
- modelCache.kind image needs modelCache.image.reference.
{{- end -}}
{{- if ne $cache.kind "none" -}}
{{- if has $cache.mountPath (list "/tmp" "/dev/shm" "/opt/baton" (include "baton.hasIndex" $values | empty | ternary "" $values.index.mountPath)) }}
- modelCache.mountPath is {{ $cache.mountPath }}, where something else lies: choose a folder of its own, such as /models.
{{- end -}}
{{- end -}}
{{- if and (eq $cache.kind "claim") (eq $cache.claim.accessMode "ReadOnlyMany") (or $cache.preload.enabled (not $cache.claim.existing)) }}
- modelCache.claim.accessMode ReadOnlyMany needs a claim that holds the models already: name it in modelCache.claim.existing and drop modelCache.preload, or use ReadWriteMany.
{{- end -}}
{{- if and (eq $cache.kind "claim") (hasPrefix "ReadWriteOnce" $cache.claim.accessMode) (not $cache.claim.singleNode) }}
- modelCache.claim.accessMode {{ $cache.claim.accessMode }} serves one node, and every pod mounts the cache: use ReadWriteMany or ReadOnlyMany, or claim.singleNode on a cluster of one node.
{{- end -}}
{{- if and $cache.preload.enabled (not (has $cache.kind (list "claim" "hostPath"))) }}
- modelCache.preload needs somewhere to fetch to: set modelCache.kind to claim or hostPath.
{{- end -}}
{{- if and $cache.offline (or $cache.mirror $cache.preload.enabled) }}
- modelCache.offline never asks the hub: drop modelCache.mirror and modelCache.preload, or offline.
{{- end -}}
{{- if and $cache.offline (eq $cache.kind "none") -}}
{{- range $name, $model := $values.models -}}
{{- with include "baton.hubSource" $model }}
- modelCache.offline forbids the hub, and models.{{ $name }} loads {{ . }} from it: give a path as model_source, or a cache by modelCache.kind.
{{- end -}}
{{- end -}}
{{- $embedder := $values.pipeline.embedder -}}
{{- if and (eq $embedder.kind "huggingface") (not (hasPrefix "/" $embedder.source)) }}
- modelCache.offline forbids the hub, and pipeline.embedder.source is {{ $embedder.source }}: give a path, or a cache by modelCache.kind.
{{- end -}}
{{- end -}}
{{- end -}}
