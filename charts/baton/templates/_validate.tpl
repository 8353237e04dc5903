{{- define "baton.validate" -}}
{{- end -}}
