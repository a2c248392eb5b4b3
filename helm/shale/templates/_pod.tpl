{{- /*
A pod of a workload; takes besides it args, strategy, and if they are wanted env, ports, podLabels, isJob, isCommand (no
ports, no settings of a daemon), configFile, and before: container (its name) and args of what ends before it starts.
*/ -}}
{{- define "shale.pod" -}}
{{- $root := .root }}
{{- $values := .values }}
{{- $sources := include "shale.secretSources" . }}
{{- $encrypted := include "shale.readsRows" . }}
{{- $certificates := "" }}
{{- if not .isCommand }}{{ $certificates = include "shale.tlsSources" (dict "root" $root "own" true "ca" true "clients" true) }}{{ end -}}
metadata:
  labels:
    {{- include "shale.selector" . | nindent 4 }}
    {{- with include "shale.imageVersion" (dict "root" $root "image" $values.image) }}
    app.kubernetes.io/version: {{ . | quote }}
    {{- end }}
    {{- with mergeOverwrite (deepCopy $root.Values.commonLabels) (default dict .podLabels) $values.podLabels }}{{ toYaml . | nindent 4 }}{{ end }}
  annotations:
    checksum/config: {{ include "shale.checksum" . }}
    {{- with $values.secretsChecksum }}
    checksum/secrets: {{ . | quote }}
    {{- end }}
    {{- with $values.podAnnotations }}{{ toYaml . | nindent 4 }}{{ end }}
spec:
  serviceAccountName: {{ .accountName }}
  automountServiceAccountToken: {{ $root.Values.serviceAccount.automount }}
  enableServiceLinks: false
  terminationGracePeriodSeconds: {{ $values.terminationGracePeriodSeconds }}
  {{- with $root.Values.imagePullSecrets }}
  imagePullSecrets: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- range $name := list "nodeSelector" "tolerations" "affinity" "priorityClassName" }}
  {{- with index $values $name }}
  {{ $name }}: {{- if kindIs "string" . }} {{ . }}{{ else }}{{ toYaml . | nindent 4 }}{{ end }}
  {{- end }}
  {{- end }}
  {{- if $values.topologySpreadConstraints }}
  topologySpreadConstraints: {{- toYaml $values.topologySpreadConstraints | nindent 4 }}
  {{- else if eq .strategy "RollingUpdate" }}
  topologySpreadConstraints:
    - maxSkew: 1
      topologyKey: kubernetes.io/hostname
      whenUnsatisfiable: ScheduleAnyway
      labelSelector:
        matchLabels: {{- default (include "shale.selector" .) .spread | nindent 10 }}
  {{- end }}
  {{- if .isJob }}
  restartPolicy: Never
  {{- end }}
  {{- with $values.extraPodSpec }}{{ toYaml . | nindent 2 }}{{ end }}
  securityContext: {{- toYaml $values.podSecurityContext | nindent 4 }}
  {{- if or $values.initContainers .before }}
  initContainers:
    {{- with $values.initContainers }}{{ toYaml . | nindent 4 }}{{ end }}
    {{- with .before }}{{ include "shale.container" (merge (deepCopy .) $) | nindent 4 }}{{ end }}
  {{- end }}
  containers:
    {{- include "shale.container" . | nindent 4 }}
    {{- with $values.extraContainers }}{{ toYaml . | nindent 4 }}{{ end }}
  volumes:
    - {name: config, configMap: {name: {{ .configName }}}}
    - {name: tmp, emptyDir: {}}
    - name: cache
      {{- include "shale.cacheVolume" . | nindent 6 }}
    {{- if $sources }}
    - name: secrets
      projected:
        sources: {{- $sources | nindent 10 }}
    {{- end }}
    {{- if $encrypted }}
    {{- with $root.Values.encryption }}
    - {name: encryption, secret: {secretName: {{ .existingSecret }}, items: [{key: {{ .secretKey }}, path: keys}]}}
    {{- end }}
    {{- end }}
    {{- with $certificates }}
    - name: tls
      projected:
        sources: {{- . | nindent 10 }}
    {{- end }}
    {{- with $values.extraVolumes }}{{ toYaml . | nindent 4 }}{{ end }}
{{- end }}

{{- /* A container of a pod; takes what the pod takes, and container: its name if it is not that of the role. */ -}}
{{- define "shale.container" -}}
{{- $root := .root }}
{{- $values := .values }}
{{- $sources := include "shale.secretSources" . }}
{{- $encrypted := include "shale.readsRows" . }}
- name: {{ default .role .container }}
  image: {{ include "shale.image" (dict "root" $root "image" $values.image) }}
  imagePullPolicy: {{ $values.image.pullPolicy }}
  args: {{ concat .args $values.extraArgs | toJson }}
  env:
    - {name: SHALE_CONFIG, value: {{ printf "/etc/shale/config/%s" (default "config.yaml" .configFile) }}}
    - {name: SHALE_SECRETS_DIR, value: /etc/shale/secrets}
    {{- if not .isCommand }}
    - {name: SHALE_ADMIN__PORT, value: {{ $root.Values.metrics.port | quote }}}
    - {name: SHALE_ADMIN__REQUIRE_TOKEN, value: "true"}
    {{- if $root.Values.auth.insecure }}
    - {name: SHALE_AUTH__INSECURE, value: "true"}
    {{- end }}
    - {name: SHALE_SHUTDOWN__DEADLINE, value: {{ printf "%ds" (sub (int $values.terminationGracePeriodSeconds) 10) | quote }}}
    {{- with include "shale.tlsVariables" $root | trim }}{{ . | nindent 4 }}{{ end }}
    {{- end }}
    {{- with .env }}{{ toYaml . | nindent 4 }}{{ end }}
    {{- with $values.extraEnv }}{{ toYaml . | nindent 4 }}{{ end }}
  {{- with $values.extraEnvFrom }}
  envFrom: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- if not .isCommand }}
  ports:
    - {name: admin, containerPort: {{ $root.Values.metrics.port }}}
    {{- range .ports }}
    - {name: {{ .name }}, containerPort: {{ .port }}}
    {{- end }}
  {{- end }}
  {{- if not .isJob }}
  {{- range $kind, $probe := $values.probes }}
  {{- with $probe }}
  {{ $kind }}Probe: {{- include "shale.probe" (dict "root" $root "probe" .) | nindent 4 }}
  {{- end }}
  {{- end }}
  {{- with $values.lifecycle }}
  lifecycle: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- end }}
  resources: {{- toYaml $values.resources | nindent 4 }}
  securityContext: {{- toYaml $values.securityContext | nindent 4 }}
  volumeMounts:
    - {name: config, mountPath: /etc/shale/config, readOnly: true}
    - {name: tmp, mountPath: /tmp}
    - {name: cache, mountPath: /var/cache/shale}
    {{- if $sources }}
    - {name: secrets, mountPath: /etc/shale/secrets, readOnly: true}
    {{- end }}
    {{- if $encrypted }}
    - {name: encryption, mountPath: /etc/shale/encryption, readOnly: true}
    {{- end }}
    {{- if and (include "shale.hasTls" $root) (not .isCommand) }}
    - {name: tls, mountPath: /etc/shale/tls, readOnly: true}
    {{- end }}
    {{- with $values.extraVolumeMounts }}{{ toYaml . | nindent 4 }}{{ end }}
{{- end }}

{{- /* Whether a role has the keys of the encryption; gc and backups handle objects as they are. */ -}}
{{- define "shale.readsRows" -}}
{{- if and .root.Values.encryption.existingSecret (not (has .role (list "gc" "backup"))) }}true{{ end }}
{{- end }}

{{- /* Whether the chart makes the tokens. */ -}}
{{- define "shale.makesTokens" -}}
{{- if not (or .Values.auth.existingSecret .Values.auth.insecure) }}true{{ end }}
{{- end }}

{{- define "shale.tokensName" -}}{{ include "shale.fullname" . }}-tokens{{- end }}

{{- /* Secret files, named after settings: credentials of the store, and tokens of the ports that the role has. */ -}}
{{- define "shale.secretSources" -}}
{{- $sources := list }}
{{- with .store }}
{{- if .existingSecret }}
{{- $sources = append $sources (include "shale.credentials" (dict "of" . "section" "store") | fromJson) }}
{{- end }}
{{- end }}
{{- if eq .role "backup" }}
{{- if .values.existingSecret }}
{{- $sources = append $sources (include "shale.credentials" (dict "of" .values "section" "backup__store") | fromJson) }}
{{- end }}
{{- else }}
{{- $auth := .root.Values.auth }}
{{- if include "shale.makesTokens" .root }}
{{- $items := list (dict "key" "token-hash" "path" "tokens__write") }}
{{- if not $auth.admin.existingSecret }}{{ $items = append $items (dict "key" "admin-token-hash" "path" "tokens__admin") }}{{ end }}
{{- /* A standby asks the active writer; the address comes from the manifest, so its token may only read. */}}
{{- if eq .role "writer" }}{{ if .values.standby.enabled }}
{{- $items = append $items (dict "key" "standby-token-hash" "path" "tokens__read") }}
{{- $items = append $items (dict "key" "standby-token" "path" "standby__token") }}
{{- end }}{{ end }}
{{- $sources = append $sources (dict "secret" (dict "name" (include "shale.tokensName" .root) "items" $items)) }}
{{- end }}
{{- if $auth.existingSecret }}
{{- $items := list }}
{{- if and $auth.secretKey (has .role (list "writer" "reader")) }}{{ $items = append $items (dict "key" $auth.secretKey "path" "http__bearer_token") }}{{ end }}
{{- range $role, $key := $auth.roleKeys }}{{ $items = append $items (dict "key" $key "path" (printf "tokens__%s" $role)) }}{{ end }}
{{- if $items }}{{ $sources = append $sources (dict "secret" (dict "name" $auth.existingSecret "items" $items)) }}{{ end }}
{{- end }}
{{- if $auth.admin.existingSecret }}
{{- $items := list (dict "key" $auth.admin.secretKey "path" "admin__bearer_token") }}
{{- $sources = append $sources (dict "secret" (dict "name" $auth.admin.existingSecret "items" $items)) }}
{{- end }}
{{- end }}
{{- if $sources }}{{ toYaml $sources }}{{ end }}
{{- end }}

{{- /* A secret with the credentials of a store as a source of files, as JSON; takes of, and the section of the settings. */ -}}
{{- define "shale.credentials" -}}
{{- $items := list (dict "key" .of.secretKeys.accessKeyId "path" (printf "%s__access_key_id" .section)) }}
{{- $items = append $items (dict "key" .of.secretKeys.secretAccessKey "path" (printf "%s__secret_access_key" .section)) }}
{{- dict "secret" (dict "name" .of.existingSecret "items" $items) | toJson }}
{{- end }}

{{- define "shale.cacheVolume" -}}
{{- $cache := .values.cache }}
{{- if $cache.existingClaim -}}
persistentVolumeClaim: {claimName: {{ $cache.existingClaim }}}
{{- else if $cache.ephemeral -}}
ephemeral:
  volumeClaimTemplate:
    spec:
      accessModes: [ReadWriteOnce]
      {{- with $cache.ephemeral.storageClassName }}
      storageClassName: {{ . }}
      {{- end }}
      resources: {requests: {storage: {{ $cache.ephemeral.size }}}}
{{- else -}}
emptyDir: {{ default dict $cache.emptyDir | toJson }}
{{- end }}
{{- end }}
