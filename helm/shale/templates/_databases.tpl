{{- /* The databases of the release as JSON; the single form is one without a name. */ -}}
{{- define "shale.databases" -}}
{{- if .Values.databases }}{{ dict "items" .Values.databases | toJson }}
{{- else }}{{ dict "items" (list (merge (dict "name" "") .Values.database)) | toJson }}
{{- end }}
{{- end }}

{{- /* What names of objects of a database begin with. */ -}}
{{- define "shale.base" -}}
{{- if .database.name }}{{ include "shale.fullname" .root }}-{{ .database.name }}{{ else }}{{ include "shale.fullname" .root }}{{ end }}
{{- end }}

{{- /* The bucket of a database's URL, with its scheme. */ -}}
{{- define "shale.storeOf" -}}{{ regexFind "^[a-z0-9]+://[^/]*" . }}{{- end }}

{{- define "shale.pathOf" -}}{{ trimPrefix (include "shale.storeOf" .) . | trimAll "/" }}{{- end }}

{{- /* The label db of the metrics of a database. */ -}}
{{- define "shale.dbLabel" -}}{{ default (include "shale.pathOf" .url) .alias }}{{- end }}

{{- /* Groups of databases that one gc serves, as JSON: the databases of one store, which one set of credentials opens. */ -}}
{{- define "shale.gcGroups" -}}
{{- $groups := dict }}
{{- range (include "shale.databases" . | fromJson).items }}
{{- $key := printf "%s %s" (include "shale.storeOf" (default "" .url)) (toJson .objectStore) | sha256sum | trunc 8 }}
{{- $_ := set $groups $key (append (default list (index $groups $key)) .) }}
{{- end }}
{{- toJson $groups }}
{{- end }}

{{- /* Groups of databases that workers without a database of their own serve, as JSON: of one store, one set of credentials, and with the same settings, because a worker has one merge operator, one compression and so on. */ -}}
{{- define "shale.workerGroups" -}}
{{- $groups := dict }}
{{- range .Values.databases }}
{{- if include "shale.sharesWorkers" . }}
{{- $settings := include "shale.workerSettings" . }}
{{- $key := printf "%s %s %s" (include "shale.storeOf" .url) (toJson .objectStore) $settings | sha256sum | trunc 8 }}
{{- $_ := set $groups $key (append (default list (index $groups $key)) .) }}
{{- end }}
{{- end }}
{{- toJson $groups }}
{{- end }}

{{- /* Whether one of several databases is served by shared workers: it is, unless it has values for workers. */ -}}
{{- define "shale.sharesWorkers" -}}
{{- if and .name (not (hasKey . "worker")) }}true{{ end }}
{{- end }}

{{- /* The settings of a database that a worker reads, as JSON. */ -}}
{{- define "shale.workerSettings" -}}
{{- omit (default dict .settings) "writer" "reader" "compactor" "gc" | toJson }}
{{- end }}

{{- /* The object store of a database or, with role, of one of its roles: the nearest one wins. */ -}}
{{- define "shale.objectStore" -}}
{{- $role := default "none" .role }}
{{- $stores := list (default dict (index .root.Values $role)).objectStore .database.objectStore (default dict (index .database $role)).objectStore }}
{{- $store := deepCopy .root.Values.objectStore }}
{{- range $stores }}{{ $store = mergeOverwrite $store (deepCopy (default dict .)) }}{{ end }}
{{- toJson $store }}
{{- end }}

{{- /* Settings that the chart makes, under those of the values; takes root and database. */ -}}
{{- define "shale.configOf" -}}
{{- $database := dict "url" .database.url }}
{{- with .database.alias }}{{ $_ := set $database "alias" . }}{{ end }}
{{- with .database.walStore }}{{ $_ := set $database "wal_store" . }}{{ end }}
{{- $objects := include "shale.objectStore" . | fromJson }}
{{- $store := dict }}
{{- with $objects.endpoint }}{{ $_ := set $store "endpoint" . }}{{ end }}
{{- with $objects.region }}{{ $_ := set $store "region" . }}{{ end }}
{{- $made := dict "database" $database "store" $store }}
{{- if .root.Values.encryption.existingSecret }}{{ $_ := set $made "encryption" (dict "key_file" "/etc/shale/encryption/keys") }}{{ end }}
{{- mergeOverwrite $made (deepCopy .root.Values.settings) (deepCopy (default dict .database.settings)) | toYaml }}
{{- end }}

{{- /* The settings of a gc or a worker for several databases; takes root, role and databases. */ -}}
{{- define "shale.sharedConfigOf" -}}
{{- $first := first .databases }}
{{- $settings := ternary (include "shale.workerSettings" $first | fromJson) dict (eq .role "worker") }}
{{- $config := include "shale.configOf" (dict "root" .root "database" (set (omit $first "settings") "settings" $settings)) | fromYaml }}
{{- $paths := list }}
{{- $aliases := dict }}
{{- $logs := dict }}
{{- range rest .databases }}
{{- $path := include "shale.pathOf" .url }}
{{- $paths = append $paths $path }}
{{- if .alias }}{{ $_ := set $aliases $path .alias }}{{ end }}
{{- if .walStore }}{{ $_ := set $logs $path .walStore }}{{ end }}
{{- end }}
{{- $own := default dict (index $config .role) }}
{{- if $paths }}{{ $_ := set $own "databases" $paths }}{{ end }}
{{- if $aliases }}{{ $_ := set $own "database_aliases" $aliases }}{{ end }}
{{- if and $logs (eq .role "gc") }}{{ $_ := set $own "wal_stores" $logs }}{{ end }}
{{- if $own }}{{ $_ := set $config .role $own }}{{ end }}
{{- if eq .role "gc" }}{{ include "shale.gcReads" $config }}{{ else }}{{ omit $config "writer" "reader" "compactor" "gc" | toYaml }}{{ end }}
{{- end }}

{{- /* What a gc reads of a configuration: it handles objects as they are, and has no keys of the chart's encryption. */ -}}
{{- define "shale.gcReads" -}}
{{- omit . "encryption" "writer" "reader" "compactor" "worker" | toYaml }}
{{- end }}

{{- /* Sets the name and the config of the backups of a database; takes root and database. */ -}}
{{- define "shale.backup" -}}
{{- $base := include "shale.base" . }}
{{- /* Kubernetes allows a CronJob 52 characters. */}}
{{- if gt (len $base) 45 }}{{ $base = printf "%s-%s" ($base | trunc 36 | trimSuffix "-") ($base | sha256sum | trunc 8) }}{{ end }}
{{- $_ := set . "name" (printf "%s-backup" $base) }}
{{- $_ := set . "config" (include "shale.backupConfigOf" .) }}
{{- end }}

{{- /* Whether the place of backups has access of its own: named, or because it is a store of another kind. */ -}}
{{- define "shale.ownAccess" -}}
{{- $kind := regexFind "^[a-z0-9]+" .database.url }}
{{- if or .values.endpoint .values.region .values.existingSecret (not (hasPrefix (printf "%s:" $kind) .values.url)) }}true{{ end }}
{{- end }}

{{- /* The settings of the backups of a database: each one has a place of its own, because one prune runs at a time. */ -}}
{{- define "shale.backupConfigOf" -}}
{{- $all := .root.Values.backup }}
{{- $own := default dict .database.backup }}
{{- $values := mergeOverwrite (deepCopy $all) (deepCopy $own) }}
{{- $url := $values.url }}
{{- if and $url .database.name (not $own.url) }}{{ $url = printf "%s/%s" (trimSuffix "/" $url) .database.name }}{{ end }}
{{- $backup := dict "url" $url }}
{{- $store := dict }}
{{- with $values.endpoint }}{{ $_ := set $store "endpoint" . }}{{ end }}
{{- with $values.region }}{{ $_ := set $store "region" . }}{{ end }}
{{- /* A section without a value is no section, so that it has one that is null. */}}
{{- if include "shale.ownAccess" (dict "values" $values "database" .database) }}{{ $_ := set $backup "store" (default (dict "endpoint" nil) $store) }}{{ end }}
{{- $config := include "shale.configOf" . | fromYaml }}
{{- merge (dict "backup" $backup) (omit $config "encryption" "writer" "reader" "compactor" "worker" "gc") | toYaml }}
{{- end }}

{{- /* What a role reads of a configuration; pods of other roles need not restart when it changes. */ -}}
{{- define "shale.checksum" -}}
{{- $read := .config | fromYaml }}
{{- range without (list "writer" "reader" "compactor" "worker" "gc") .role }}{{ $_ := unset $read . }}{{ end }}
{{- toYaml $read | sha256sum }}
{{- end }}
