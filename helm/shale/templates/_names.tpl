{{- define "shale.name" -}}{{ default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}{{- end }}

{{- /* At most 48 characters: "-writer-standby" follows in names of Services, which have 63. */ -}}
{{- define "shale.fullname" -}}
{{- if .Values.fullnameOverride }}{{ .Values.fullnameOverride | trunc 48 | trimSuffix "-" }}
{{- else if contains (include "shale.name" .) .Release.Name }}{{ .Release.Name | trunc 48 | trimSuffix "-" }}
{{- else }}{{ printf "%s-%s" .Release.Name (include "shale.name" .) | trunc 48 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "shale.namespace" -}}{{ default .Release.Namespace .Values.namespaceOverride }}{{- end }}

{{- /* The value of the label helm_release in metrics. */ -}}
{{- define "shale.release" -}}{{ include "shale.namespace" . }}/{{ include "shale.fullname" . }}{{- end }}

{{- /* What all pods of a release have. */ -}}
{{- define "shale.releaseSelector" -}}
app.kubernetes.io/name: {{ include "shale.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- /* Labels that never change; takes root, component, and for several databases instance: a map of further labels. */ -}}
{{- define "shale.selector" -}}
{{ include "shale.releaseSelector" .root }}
app.kubernetes.io/component: {{ .component }}
{{- with .instance }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "shale.labels" -}}
{{ include "shale.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/part-of: shale
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* The metadata of an object; takes root, component, name, and if they are wanted labels and annotations. */ -}}
{{- define "shale.metadata" -}}
name: {{ .name }}
namespace: {{ include "shale.namespace" .root }}
labels:
  {{- include "shale.labels" . | nindent 2 }}
  {{- with .labels }}{{ toYaml . | nindent 2 }}{{ end }}
{{- with mergeOverwrite (deepCopy .root.Values.commonAnnotations) (default dict .annotations) }}
annotations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- /* Takes an image: a role's keys merged over the global ones, and root. */ -}}
{{- define "shale.image" -}}
{{- if .image.digest }}{{ printf "%s@%s" .image.repository .image.digest }}{{ else }}{{ printf "%s:%s" .image.repository (default .root.Chart.AppVersion .image.tag) }}{{ end }}
{{- end }}

{{- /* One image over another, as JSON: empty keys override nothing, and a tag or a digest replaces both. */ -}}
{{- define "shale.mergedImage" -}}
{{- $own := dict }}
{{- range $key, $value := default dict .own }}{{ if $value }}{{ $_ := set $own $key $value }}{{ end }}{{ end }}
{{- $base := deepCopy .base }}
{{- if or $own.tag $own.digest }}{{ $base = omit $base "tag" "digest" }}{{ end }}
{{- mergeOverwrite $base $own | toJson }}
{{- end }}

{{- /* The version of an image as a label; a digest alone tells none.  It follows the image, not the chart, so that an upgrade of one role leaves the pods of the others alone. */ -}}
{{- define "shale.imageVersion" -}}
{{- if or .image.tag (not .image.digest) }}{{ default .root.Chart.AppVersion .image.tag | trunc 63 | trimAll "-_." }}{{ end }}
{{- end }}

{{- /* A map without the keys that are null: a role removes a key of the global map that way. */ -}}
{{- define "shale.withoutNull" -}}
{{- $kept := dict }}
{{- range $key, $value := . }}{{ if not (kindIs "invalid" $value) }}{{ $_ := set $kept $key $value }}{{ end }}{{ end }}
{{- toYaml $kept }}
{{- end }}
