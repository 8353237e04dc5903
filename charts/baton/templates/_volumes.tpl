{{/* Sources of volumes that several pods mount. */}}

{{/* (list root values): the source of the volume of the model cache. */}}
{{- define "baton.cacheVolume" -}}
{{- $cache := (index . 1).modelCache -}}
{{- if eq $cache.kind "claim" -}}
persistentVolumeClaim: {claimName: {{ $cache.claim.existing | default (printf "%s-models" (include "baton.fullname" (index . 0))) | quote }}}
{{- else if eq $cache.kind "hostPath" -}}
hostPath: {path: {{ $cache.hostPath | quote }}, type: Directory}
{{- else -}}
image: {reference: {{ $cache.image.reference | quote }}, pullPolicy: {{ $cache.image.pullPolicy }}}
{{- end -}}
{{- end -}}

{{/* The Secret with the file of keys. The kubelet brings its changes into running pods, so none of them restarts. */}}
{{- define "baton.keysVolume" -}}
{{- with .auth.existingSecret }}
- name: keys
  secret: {secretName: {{ . | quote }}, defaultMode: 288, items: [{key: {{ $.auth.key | quote }}, path: keys.yaml}]}
{{- end }}
{{- end -}}

{{- define "baton.keysMount" -}}
{{- if .auth.existingSecret }}
- {name: keys, mountPath: /etc/baton/keys, readOnly: true}
{{- end }}
{{- end -}}
