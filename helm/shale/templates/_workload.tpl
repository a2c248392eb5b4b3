{{- /*
Completes a workload: a dict with root, role and database (or databases, for the gc of several), and if they are not the
usual ones component, base, name and instance (labels of the selector).  Sets these, values (of the role, merged with
those of all roles and of the database), store, config and accountName.
*/ -}}
{{- define "shale.workload" -}}
{{- $all := .root.Values }}
{{- $database := default dict .database }}
{{- $values := mergeOverwrite (deepCopy (index $all .role)) (deepCopy (default dict (index $database .role))) }}
{{- $image := include "shale.mergedImage" (dict "base" $all.image "own" $values.image) | fromJson }}
{{- if eq (default "" .component) "writer-standby" }}
{{- $image = include "shale.mergedImage" (dict "base" $image "own" $values.standby.image) | fromJson }}
{{- $values = mergeOverwrite $values (omit (deepCopy $values.standby) "enabled") }}
{{- end }}
{{- $_ := set $values "image" $image }}
{{- range $key := list "podLabels" "podAnnotations" "nodeSelector" "podSecurityContext" "securityContext" "lifecycle" "extraPodSpec" }}
{{- $merged := mergeOverwrite (deepCopy (index $all $key)) (deepCopy (default dict (index $values $key))) }}
{{- $_ := set $values $key (include "shale.withoutNull" $merged | fromYaml) }}
{{- end }}
{{- $probes := dict }}
{{- range $kind := list "startup" "liveness" "readiness" }}
{{- $probe := mergeOverwrite (deepCopy (default dict (index $all.probes $kind))) (deepCopy (default dict (index (default dict $values.probes) $kind))) }}
{{- $_ := set $probes $kind (include "shale.withoutNull" $probe | fromYaml) }}
{{- end }}
{{- $_ := set $values "probes" $probes }}
{{- /* Global arguments are those of daemons. */}}
{{- $_ := set $values "extraArgs" (concat (ternary list (default list $all.extraArgs) (eq .role "backup")) (default list $values.extraArgs)) }}
{{- range $key := list "tolerations" "extraEnv" "extraEnvFrom" "extraVolumes" "extraVolumeMounts" "initContainers" "extraContainers" }}
{{- $_ := set $values $key (concat (default list (index $all $key)) (default list (index $values $key))) }}
{{- end }}
{{- range $key := list "affinity" "priorityClassName" "topologySpreadConstraints" "secretsChecksum" }}
{{- if not (index $values $key) }}{{ $_ := set $values $key (index $all $key) }}{{ end }}
{{- end }}
{{- $_ := set . "values" $values }}
{{- $component := default .role .component }}
{{- $_ := set . "component" $component }}
{{- if not .base }}{{ $_ := set . "base" (include "shale.base" .) }}{{ end }}
{{- if not .name }}{{ $_ := set . "name" (printf "%s-%s" .base $component) }}{{ end }}
{{- if $database.name }}{{ $_ := set . "instance" (dict "shale/database" $database.name) }}{{ end }}
{{- if not .config }}{{ $_ := set . "config" (include "shale.configOf" .) }}{{ end }}
{{- if not .configName }}{{ $_ := set . "configName" .base }}{{ end }}
{{- $_ := set . "store" (include "shale.objectStore" . | fromJson) }}
{{- $_ := set . "accountName" (include "shale.accountName" .) }}
{{- end }}

{{- /* The account of a role: its own, one of its database, or the shared one. */ -}}
{{- define "shale.accountName" -}}
{{- $own := default dict .values.serviceAccount }}
{{- $ofDatabase := hasKey (default dict (index (default dict .database) .role)) "serviceAccount" }}
{{- if $own.name }}{{ $own.name }}
{{- else if and $own.create $ofDatabase }}{{ .base }}-{{ .role }}
{{- else if $own.create }}{{ include "shale.fullname" .root }}-{{ .role }}
{{- else }}{{ include "shale.sharedAccount" .root }}
{{- end }}
{{- end }}

{{- define "shale.sharedAccount" -}}
{{- if .Values.serviceAccount.create }}{{ default (include "shale.fullname" .) .Values.serviceAccount.name }}{{ else }}{{ default "default" .Values.serviceAccount.name }}{{ end }}
{{- end }}

{{- /* Completes a workload that several databases share: a gc or workers; takes also role, databases, key (of the group) and groups (their number). */ -}}
{{- define "shale.sharedWorkload" -}}
{{- $_ := set . "database" (pick (first .databases) "url" "objectStore") }}
{{- $_ := set . "base" (include "shale.fullname" .root) }}
{{- $_ := set . "name" (printf "%s-%s" .base .role) }}
{{- if gt .groups 1 }}{{ $_ := set . "name" (printf "%s-%s" .name .key) }}{{ end }}
{{- if eq .role "worker" }}
{{- /* Never without it: workers of one database have the other labels, too. */}}
{{- $_ := set . "instance" (dict "shale/workers" (ternary .key "shared" (gt .groups 1))) }}
{{- else if gt .groups 1 }}
{{- $_ := set . "instance" (dict "shale/store" .key) }}
{{- end }}
{{- $_ := set . "config" (include "shale.sharedConfigOf" .) }}
{{- $_ := set . "configName" .name }}
{{- include "shale.workload" . }}
{{- end }}

{{- /* Whether there are workers: a number, or an autoscaler; takes values. */ -}}
{{- define "shale.hasWorkers" -}}
{{- if or (gt (int .values.replicas) 0) .values.autoscaling.enabled }}true{{ end }}
{{- end }}

{{- /* Every workload of the release as a list in .found: of each database its roles, and workers and gcs that databases share; takes root, and roles if not all are wanted. */ -}}
{{- define "shale.workloads" -}}
{{- $root := .root }}
{{- $roles := default (list "writer" "reader" "compactor" "worker" "gc" "backup") .roles }}
{{- $found := list }}
{{- range $database := (include "shale.databases" $root | fromJson).items }}
{{- $own := without $roles "gc" }}
{{- if include "shale.sharesWorkers" $database }}{{ $own = without $own "worker" }}{{ end }}
{{- range $role := $own }}
{{- $workload := dict "root" $root "role" $role "database" $database }}
{{- if eq $role "backup" }}{{ include "shale.backup" $workload }}{{ end }}
{{- include "shale.workload" $workload }}
{{- $values := $workload.values }}
{{- $runs := $values.enabled }}
{{- if eq $role "worker" }}{{ $runs = include "shale.hasWorkers" $workload }}{{ end }}
{{- if $runs }}{{ $found = append $found $workload }}{{ end }}
{{- if and $runs (eq $role "writer") }}
{{- if $values.standby.enabled }}
{{- $standby := dict "root" $root "role" "writer" "component" "writer-standby" "database" $database }}
{{- include "shale.workload" $standby }}
{{- $found = append $found $standby }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- if has "worker" $roles }}
{{- $groups := include "shale.workerGroups" $root | fromJson }}
{{- range $key, $databases := $groups }}
{{- $workload := dict "root" $root "role" "worker" "databases" $databases "key" $key "groups" (len $groups) }}
{{- include "shale.sharedWorkload" $workload }}
{{- if include "shale.hasWorkers" $workload }}{{ $found = append $found $workload }}{{ end }}
{{- end }}
{{- end }}
{{- $groups := include "shale.gcGroups" $root | fromJson }}
{{- range $key, $databases := ternary $groups dict (and $root.Values.gc.enabled (has "gc" $roles)) }}
{{- $workload := dict "root" $root "role" "gc" "database" (first $databases) }}
{{- if $root.Values.databases }}
{{- $workload = dict "root" $root "role" "gc" "databases" $databases "key" $key "groups" (len $groups) }}
{{- include "shale.sharedWorkload" $workload }}
{{- else }}
{{- if $root.Values.encryption.existingSecret }}
{{- $_ := set $workload "config" (include "shale.gcReads" (include "shale.configOf" $workload | fromYaml)) }}
{{- $_ := set $workload "configName" (printf "%s-gc" (include "shale.base" $workload)) }}
{{- end }}
{{- include "shale.workload" $workload }}
{{- end }}
{{- $found = append $found $workload }}
{{- end }}
{{- $_ := set . "found" $found }}
{{- end }}
