{{- define "yumen.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "yumen.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else if contains (include "yumen.name" .) .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "yumen.name" .) | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "yumen.namespace" -}}
{{- default .Release.Namespace .Values.namespaceOverride -}}
{{- end -}}

{{/* Templates of ingress-nginx's names, which its values may contain. */}}
{{- define "ingress-nginx.name" -}}{{ include "yumen.name" . }}{{- end -}}
{{- define "ingress-nginx.fullname" -}}{{ include "yumen.fullname" . }}{{- end -}}
{{- define "ingress-nginx.controller.fullname" -}}{{ include "yumen.fullname" . }}{{- end -}}
{{- define "ingress-nginx.namespace" -}}{{ include "yumen.namespace" . }}{{- end -}}

{{- define "yumen.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "yumen.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "yumen.selectorLabels" -}}
app.kubernetes.io/name: {{ include "yumen.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "yumen.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{ include "yumen.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Metadata of an object. Arguments: root, name, and optionally labels, annotations, namespace (a name, or false for objects of
     the cluster). */}}
{{- define "yumen.metadata" -}}
{{- $annotations := merge (dict) (default (dict) .annotations) .root.Values.commonAnnotations -}}
name: {{ .name }}
{{- if not (eq (toString .namespace) "false") }}
namespace: {{ default (include "yumen.namespace" .root) .namespace }}
{{- end }}
labels:
  {{- include "yumen.labels" .root | nindent 2 }}
  {{- with .labels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with $annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "yumen.image" -}}
{{- $image := .image -}}
{{- $name := ternary (printf "%s/%s" $image.registry $image.repository) $image.repository (ne $image.registry "") -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $name $image.digest -}}
{{- else -}}
{{- printf "%s:%s" $name (toString (default .version $image.tag)) -}}
{{- end -}}
{{- end -}}

{{/* Whether an object of the cluster exists and belongs to another release: Helm refuses an installation that has it, too.
     Arguments: root, version, kind, name. */}}
{{- define "yumen.isForeign" -}}
{{- $existing := lookup .version .kind "" .name -}}
{{- if $existing -}}
{{- $annotations := default (dict) $existing.metadata.annotations -}}
{{- $owner := printf "%s/%s" (get $annotations "meta.helm.sh/release-namespace") (get $annotations "meta.helm.sh/release-name") -}}
{{- if ne $owner (printf "%s/%s" .root.Release.Namespace .root.Release.Name) -}}true{{- end -}}
{{- end -}}
{{- end -}}
