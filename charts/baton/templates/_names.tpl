{{/* Names, labels and the image. All of them take the root context. */}}

{{- define "baton.name" -}}
{{- .Values.nameOverride | default .Chart.Name -}}
{{- end -}}

{{- define "baton.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else if contains (include "baton.name" .) .Release.Name -}}
{{- .Release.Name -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "baton.name" .) -}}
{{- end -}}
{{- end -}}

{{/* Labels that select, and the only ones on the Ray cluster's pods: they never change with the chart (case C01). */}}
{{- define "baton.selectorLabels" -}}
app.kubernetes.io/name: {{ include "baton.name" . | trunc 63 | trimSuffix "-" | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- define "baton.labels" -}}
{{ include "baton.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | replace "+" "_" | trunc 63 | trimSuffix "-" | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end -}}

{{/* (list root suffix): the name of an object. */}}
{{- define "baton.objectName" -}}
{{- print (include "baton.fullname" (index . 0)) (empty (index . 1) | ternary "" "-") (index . 1) -}}
{{- end -}}

{{/* The metadata of an object: (list root suffix annotations), and where it has them a name and labels of its own. */}}
{{- define "baton.metadata" -}}
{{- $root := index . 0 -}}
{{- $more := concat . (list "" dict) -}}
{{- $annotations := include "baton.filled" (list (index . 2) ($root.Values.commonAnnotations | default dict)) | fromJson -}}
{{- $labels := include "baton.filled" (list ($root.Values.commonLabels | default dict) (index $more 4 | default dict)) | fromJson -}}
name: {{ index $more 3 | default (include "baton.objectName" .) | quote }}
namespace: {{ $root.Release.Namespace | quote }}
labels:
  {{- include "baton.filled" (list $labels (include "baton.labels" $root | fromYaml)) | fromJson | toYaml | nindent 2 }}
{{- with $annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "baton.image" -}}
{{- $root := index . 0 -}}
{{- $image := (index . 1).image -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $image.repository $image.digest -}}
{{- else -}}
{{- printf "%s:%s" $image.repository ($image.tag | default $root.Chart.AppVersion) -}}
{{- end -}}
{{- end -}}

{{- define "baton.serviceAccountName" -}}
{{- $account := (index . 1).serviceAccount -}}
{{- $account.name | default (ternary (include "baton.fullname" (index . 0)) "default" $account.create) -}}
{{- end -}}

{{- define "baton.pullSecrets" -}}
{{- $secrets := list -}}
{{- range .image.pullSecrets -}}
{{- $secrets = append $secrets (kindIs "map" . | ternary . (dict "name" .)) -}}
{{- end -}}
{{- toJson $secrets -}}
{{- end -}}

{{/* On which nodes a pod runs. Takes the values of the pod. */}}
{{- define "baton.placement" -}}
{{- with .priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- with .nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Names of Services that KubeRay makes for the RayService. */}}
{{- define "baton.serveService" -}}{{ include "baton.fullname" . }}-serve-svc{{- end -}}
{{- define "baton.headService" -}}{{ include "baton.fullname" . }}-head-svc{{- end -}}
{{- define "baton.url" -}}http://{{ include "baton.serveService" . }}.{{ .Release.Namespace }}.svc:8000{{- end -}}
