{{- /* Whether the ports have TLS by the values, and not by settings and volumes of the user. */ -}}
{{- define "shale.hasTls" -}}{{ if .Values.tls.existingSecret }}true{{ end }}{{- end }}

{{- define "shale.scheme" -}}{{ if include "shale.hasTls" . }}https{{ else }}http{{ end }}{{- end }}

{{- /* A name in the certificate. */ -}}
{{- define "shale.serverName" -}}
{{- $first := first (include "shale.databases" . | fromJson).items }}
{{- default (printf "%s-writer.%s.svc" (include "shale.base" (dict "root" . "database" $first)) (include "shale.namespace" .)) .Values.tls.serverName }}
{{- end }}

{{- /* The files of /etc/shale/tls as sources of a volume; takes root, and which are wanted: own (the certificate), ca, clients (their authorities). */ -}}
{{- define "shale.tlsSources" -}}
{{- $tls := .root.Values.tls }}
{{- $items := list }}
{{- if .own }}
{{- $items = append $items (dict "key" $tls.secretKeys.certificate "path" "tls.crt") }}
{{- $items = append $items (dict "key" $tls.secretKeys.privateKey "path" "tls.key") }}
{{- end }}
{{- if and .ca $tls.secretKeys.ca }}{{ $items = append $items (dict "key" $tls.secretKeys.ca "path" "ca.crt") }}{{ end }}
{{- $sources := list }}
{{- if $items }}{{ $sources = append $sources (dict "secret" (dict "name" $tls.existingSecret "items" $items)) }}{{ end }}
{{- if and .clients $tls.clientCertificates.required }}
{{- $items := list (dict "key" $tls.clientCertificates.secretKey "path" "client-ca.crt") }}
{{- $sources = append $sources (dict "secret" (dict "name" (default $tls.existingSecret $tls.clientCertificates.existingSecret) "items" $items)) }}
{{- end }}
{{- if and $sources (include "shale.hasTls" .root) }}{{ toYaml $sources }}{{ end }}
{{- end }}

{{- /* The variables of a daemon that name these files. */ -}}
{{- define "shale.tlsVariables" -}}
{{- $tls := .Values.tls }}
{{- if include "shale.hasTls" . }}
- {name: SHALE_TLS__CERT_FILE, value: /etc/shale/tls/tls.crt}
- {name: SHALE_TLS__KEY_FILE, value: /etc/shale/tls/tls.key}
{{- if $tls.secretKeys.ca }}
- {name: SHALE_TLS__CA_FILE, value: /etc/shale/tls/ca.crt}
{{- end }}
{{- if $tls.clientCertificates.required }}
- {name: SHALE_TLS__CLIENT_CA_FILE, value: /etc/shale/tls/client-ca.crt}
{{- end }}
{{- end }}
{{- end }}

{{- /* A probe, over HTTPS if it asks the admin port and says nothing else; takes root and probe. */ -}}
{{- define "shale.probe" -}}
{{- $asked := default dict .probe.httpGet }}
{{- $isOurs := and (include "shale.hasTls" .root) (eq (toString $asked.port) "admin") (not $asked.scheme) }}
{{- if $isOurs }}{{ $_ := set .probe "httpGet" (merge (dict "scheme" "HTTPS") $asked) }}{{ end }}
{{- toYaml .probe }}
{{- end }}

{{- /* How Prometheus asks the ports; takes root and monitor. */ -}}
{{- define "shale.scrapeTls" -}}
{{- $tls := .root.Values.tls }}
{{- $scheme := default (ternary "https" "" (eq (include "shale.hasTls" .root) "true")) .monitor.scheme }}
{{- $config := dict }}
{{- if include "shale.hasTls" .root }}
{{- $_ := set $config "serverName" (include "shale.serverName" .root) }}
{{- with $tls.secretKeys.ca }}{{ $_ := set $config "ca" (dict "secret" (dict "name" $tls.existingSecret "key" .)) }}{{ end }}
{{- end }}
{{- $config = include "shale.withoutNull" (mergeOverwrite $config (deepCopy .monitor.tlsConfig)) | fromYaml }}
{{- with $scheme }}
scheme: {{ . }}
{{- end }}
{{- if and (eq $scheme "https") $config }}
tlsConfig: {{- toYaml $config | nindent 2 }}
{{- end }}
{{- end }}

{{- define "shale.validateTls" -}}
{{- $tls := .Values.tls }}
{{- if and $tls.clientCertificates.required (not $tls.existingSecret) }}
{{- fail "tls.clientCertificates.required needs tls.existingSecret, the certificate of the ports: clients show theirs over TLS only" }}
{{- end }}
{{- if and $tls.clientCertificates.existingSecret (not $tls.clientCertificates.required) }}
{{- fail "tls.clientCertificates.existingSecret needs tls.clientCertificates.required: without it no client is asked for a certificate" }}
{{- end }}
{{- $all := ternary (list .Values.settings) list (eq (include "shale.hasTls" .) "true") }}
{{- if $all }}{{ range .Values.databases }}{{ $all = append $all (default dict .settings) }}{{ end }}{{ end }}
{{- range $settings := $all }}
{{- range $role := list "" "writer" "reader" "compactor" "worker" "gc" }}
{{- $section := default dict (ternary $settings (default dict (index $settings $role)) (eq $role "")).tls }}
{{- range $key := list "cert_file" "key_file" "client_ca_file" "ca_file" }}
{{- $isOurs := or (ne $key "ca_file") $tls.secretKeys.ca }}
{{- if and $isOurs (hasKey $section $key) }}
{{- fail (printf "settings.%stls.%s and tls.existingSecret: give one of them" (ternary "" (printf "%s." $role) (eq $role "")) $key) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
