{{- /* The values ingress or httpRoute, in which {database} is the name of one of several databases; takes values and database. */ -}}
{{- define "shale.ofDatabase" -}}
{{- $text := toYaml .values }}
{{- if and (contains "{database}" $text) (not .database.name) }}
{{- fail "{database} in ingress or httpRoute is the name of one of several databases: write the name itself" }}
{{- end }}
{{- $text | replace "{database}" (default "" .database.name) }}
{{- end }}

{{- /* Refuses two ways to different Services that an Ingress controller or a gateway cannot tell apart. */ -}}
{{- define "shale.validateRoutes" -}}
{{- $all := dict "root" . "roles" (list "writer" "reader") }}
{{- include "shale.workloads" $all }}
{{- $taken := dict }}
{{- range $workload := $all.found }}
{{- if eq .component .role }}
{{- $ingress := include "shale.ofDatabase" (dict "values" .values.ingress "database" .database) | fromYaml }}
{{- if $ingress.enabled }}
{{- range $ingress.hosts }}
{{- include "shale.takeRoute" (dict "taken" $taken "kind" "ingress" "by" $ingress.className "host" . "path" $ingress.path "workload" $workload) }}
{{- end }}
{{- end }}
{{- $route := include "shale.ofDatabase" (dict "values" .values.httpRoute "database" .database) | fromYaml }}
{{- if $route.enabled }}
{{- range default (list "*") $route.hostnames }}
{{- include "shale.takeRoute" (dict "taken" $taken "kind" "httpRoute" "by" (toJson $route.parentRefs) "host" . "path" $route.path "workload" $workload) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- define "shale.takeRoute" -}}
{{- $key := printf "%s %s %s %s" .kind .by .host .path }}
{{- if hasKey .taken $key }}
{{- fail (printf "%s.%s: %s and %s both have the host %s and the path %s: give them different hosts, with several databases for example {database}.example.com" .workload.role .kind (index .taken $key) .workload.name .host .path) }}
{{- end }}
{{- $_ := set .taken $key .workload.name }}
{{- end }}
