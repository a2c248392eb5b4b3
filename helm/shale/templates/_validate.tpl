{{- /* Refuses values that contradict each other; the schema refuses what is wrong alone. */ -}}
{{- define "shale.validate" -}}
{{- $values := .Values }}
{{- if and $values.databases (or $values.database.url $values.database.alias $values.database.walStore) }}
{{- fail "database and databases: give one of them" }}
{{- end }}
{{- if not $values.databases }}{{ $_ := required "database.url: which database is this release for?" $values.database.url }}{{ end }}
{{- range (include "shale.databases" . | fromJson).items }}
{{- $backup := mergeOverwrite (deepCopy $values.backup) (deepCopy (default dict .backup)) }}
{{- if $backup.enabled }}
{{- $_ := required "backup.url: where do the backups go?" $backup.url }}
{{- $_ := required "backup.schedule: when are backups made?" $backup.schedule }}
{{- if hasPrefix (printf "%s/" (trimSuffix "/" .url)) (printf "%s/" (trimSuffix "/" $backup.url)) }}
{{- fail (printf "backup.url: %s is below the database %s, which would take its backups with it: name another place" $backup.url .url) }}
{{- end }}
{{- end }}
{{- end }}
{{- $names := dict }}
{{- range $values.databases }}
{{- if hasKey $names .name }}{{ fail (printf "databases: the name %s is there twice" .name) }}{{ end }}
{{- $_ := set $names .name true }}
{{- if gt (len (include "shale.base" (dict "root" $ "database" .))) 48 }}
{{- fail (printf "databases: %s: names of objects would be too long; shorten it, or set fullnameOverride" .name) }}
{{- end }}
{{- end }}
{{- with $values.auth }}
{{- if and .insecure .existingSecret }}
{{- fail "auth.insecure and auth.existingSecret: give one of them" }}
{{- end }}
{{- if and .roleKeys (not .existingSecret) }}
{{- fail "auth.roleKeys needs auth.existingSecret, the secret with these keys: without it the ports would be open" }}
{{- end }}
{{- if and .existingSecret (not .secretKey) (not .roleKeys) }}
{{- fail "auth.existingSecret is set, but neither auth.secretKey nor auth.roleKeys: the ports would be open" }}
{{- end }}
{{- end }}
{{- if and $values.gc.enabled (ne (eq $values.gc.mode "cronjob") (ne $values.gc.schedule "")) }}
{{- fail "gc.mode cronjob and gc.schedule need each other: the schedule says when the job runs" }}
{{- end }}
{{- if $values.databases }}
{{- $all := list $values.settings }}
{{- range $values.databases }}{{ $all = append $all (default dict .settings) }}{{ end }}
{{- range $settings := $all }}
{{- range $role := list "gc" "worker" }}
{{- range $key := list "databases" "database_aliases" "wal_stores" }}
{{- if hasKey (default dict (index $settings $role)) $key }}{{ fail (printf "settings.%s.%s is made of databases: add the database there" $role $key) }}{{ end }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- include "shale.validateTls" . }}
{{- include "shale.validateRoutes" . }}
{{- $identities := list "eks.amazonaws.com/role-arn" "iam.gke.io/gcp-service-account" "azure.workload.identity/client-id" }}
{{- $all := dict "root" . }}
{{- include "shale.workloads" $all }}
{{- range $workload := $all.found }}
{{- $own := default dict .values.serviceAccount }}
{{- $annotations := default dict (ternary $own.annotations $values.serviceAccount.annotations (default false $own.create)) }}
{{- range $identity := ternary $identities list (ne "" (default "" .store.existingSecret)) }}
{{- if hasKey $annotations $identity }}
{{- fail (printf "%s: the store has two kinds of credentials: remove objectStore.existingSecret, or the annotation %s of the service account %s" $workload.name $identity $workload.accountName) }}
{{- end }}
{{- end }}
{{- end }}
{{- if and (or $values.metrics.prometheusRule.enabled $values.metrics.dashboards.enabled) (not $values.metrics.podMonitor.enabled) (not $values.metrics.prometheusRule.selector) }}
{{- fail "metrics.prometheusRule and metrics.dashboards of a release need metrics.podMonitor, which marks its series, or metrics.prometheusRule.selector, for example 'namespace=\"prod\"'; helm/shale-mixin has both for the whole cluster" }}
{{- end }}
{{- end }}

{{- /* Takes root, kind, value (what asks for it) and of (who defines it). */ -}}
{{- define "shale.requireKind" -}}
{{- if and .root.Values.requireKinds (not (.root.Capabilities.APIVersions.Has .kind)) }}
{{- fail (printf "%s: the cluster does not know %s: install %s first, or switch it off; without a cluster give --api-versions %s, or set requireKinds to false" .value .kind .of .kind) }}
{{- end }}
{{- end }}
