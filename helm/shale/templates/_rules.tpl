{{- /* What limits rules and dashboards to this release, as matchers of PromQL. */ -}}
{{- define "shale.metricSelector" -}}
{{- default (printf "helm_release=%q" (include "shale.release" .)) .Values.metrics.prometheusRule.selector }}
{{- end }}

{{- /* The end of uids of this release's dashboards; Grafana allows 40 characters. */ -}}
{{- define "shale.uidEnd" -}}{{ include "shale.release" . | sha256sum | trunc 8 }}{{- end }}

{{- /* An expression in which every selector of our metrics has further matchers; takes expression and matchers. */ -}}
{{- define "shale.selected" -}}
{{- $ours := `\b((?:[a-z_]+:)?(?:slatedb|shale|process|python)_[a-z0-9_]+(?::[a-z0-9_]+)*)\b` }}
{{- $marked := regexReplaceAll $ours .expression (printf "${1}{%s}" .matchers) }}
{{- $marked | replace (printf "{%s}{" .matchers) (printf "{%s," .matchers) }}
{{- end }}
