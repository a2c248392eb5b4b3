{{- /* The port of a server's URL; without one that of the scheme, and of the clouds. */ -}}
{{- define "shale.endpointPort" -}}
{{- $named := regexFind ":[0-9]+(/|$)" (default "" .) | trimPrefix ":" | trimSuffix "/" }}
{{- if $named }}{{ $named }}{{ else if hasPrefix "http://" (default "" .) }}80{{ else }}443{{ end }}
{{- end }}

{{- define "shale.dnsPorts" -}}
{{- range .Values.networkPolicy.dnsPorts }}
- {port: {{ . }}, protocol: UDP}
- {port: {{ . }}, protocol: TCP}
{{- end }}
{{- end }}
