{{- define "shale.name" -}}{{ default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}{{- end }}

{{- define "shale.fullname" -}}
{{- if .Values.fullnameOverride }}{{ .Values.fullnameOverride | trunc 50 | trimSuffix "-" }}
{{- else if contains (include "shale.name" .) .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else }}{{ printf "%s-%s" .Release.Name (include "shale.name" .) | trunc 50 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "shale.selector" -}}
app.kubernetes.io/name: {{ include "shale.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .role }}
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

{{- define "shale.image" -}}
{{- $image := .Values.image -}}
{{- if $image.digest }}{{ printf "%s@%s" $image.repository $image.digest }}{{ else }}{{ printf "%s:%s" $image.repository (default .Chart.AppVersion $image.tag) }}{{ end }}
{{- end }}

{{- define "shale.serviceAccount" -}}
{{- if .Values.serviceAccount.create }}{{ default (include "shale.fullname" .) .Values.serviceAccount.name }}{{ else }}{{ default "default" .Values.serviceAccount.name }}{{ end }}
{{- end }}

{{- /* What every daemon reads, as one file.  It holds no secret. */ -}}
{{- define "shale.config" -}}
{{- $database := dict "url" (required "database.url: which database is this release for?" .Values.database.url) -}}
{{- if .Values.database.alias }}{{ $_ := set $database "alias" .Values.database.alias }}{{ end -}}
{{- if .Values.database.walStore }}{{ $_ := set $database "wal_store" .Values.database.walStore }}{{ end -}}
{{- $store := dict -}}
{{- if .Values.objectStore.endpoint }}{{ $_ := set $store "endpoint" .Values.objectStore.endpoint }}{{ end -}}
{{- if .Values.objectStore.region }}{{ $_ := set $store "region" .Values.objectStore.region }}{{ end -}}
{{- $made := dict "database" $database "store" $store -}}
{{- if .Values.encryption.existingSecret }}{{ $_ := set $made "encryption" (dict "key_file" "/etc/shale/encryption/keys") }}{{ end -}}
{{ toYaml (mergeOverwrite $made (deepCopy .Values.settings)) }}
{{- end }}

{{- /* What a pod is made of; root, role, values, args, strategy, and if they are wanted env, ports, isJob. */ -}}
{{- define "shale.pod" -}}
{{- $root := .root -}}
{{- $values := .values -}}
{{- $secrets := or $root.Values.objectStore.existingSecret $root.Values.auth.existingSecret -}}
metadata:
  labels: {{- include "shale.labels" . | nindent 4 }}
  annotations:
    checksum/config: {{ include "shale.config" $root | sha256sum }}
    {{- with $values.podAnnotations }}{{ toYaml . | nindent 4 }}{{ end }}
spec:
  serviceAccountName: {{ include "shale.serviceAccount" $root }}
  automountServiceAccountToken: false
  terminationGracePeriodSeconds: {{ $values.terminationGracePeriodSeconds }}
  {{- with $root.Values.imagePullSecrets }}
  imagePullSecrets: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- range $name := list "nodeSelector" "tolerations" "affinity" "priorityClassName" }}
  {{- with index $values $name }}
  {{ $name }}: {{- if kindIs "string" . }} {{ . }}{{ else }}{{ toYaml . | nindent 4 }}{{ end }}
  {{- end }}
  {{- end }}
  {{- if eq .strategy "RollingUpdate" }}
  topologySpreadConstraints:
    - maxSkew: 1
      topologyKey: kubernetes.io/hostname
      whenUnsatisfiable: ScheduleAnyway
      labelSelector:
        matchLabels: {{- include "shale.selector" . | nindent 10 }}
  {{- end }}
  {{- if .isJob }}
  restartPolicy: Never
  {{- end }}
  securityContext:
    runAsNonRoot: true
    runAsUser: 10001
    runAsGroup: 10001
    fsGroup: 10001
    seccompProfile: {type: RuntimeDefault}
  containers:
    - name: {{ .role }}
      image: {{ include "shale.image" $root }}
      imagePullPolicy: {{ $root.Values.image.pullPolicy }}
      args: {{ toJson .args }}
      env:
        - {name: SHALE_CONFIG, value: /etc/shale/config/config.yaml}
        - {name: SHALE_SECRETS_DIR, value: /etc/shale/secrets}
        - {name: SHALE_ADMIN__PORT, value: {{ $root.Values.metrics.port | quote }}}
        - {name: SHALE_SHUTDOWN__DEADLINE, value: {{ printf "%ds" (sub (int $values.terminationGracePeriodSeconds) 10) | quote }}}
        {{- with .env }}{{ toYaml . | nindent 8 }}{{ end }}
        {{- with $values.extraEnv }}{{ toYaml . | nindent 8 }}{{ end }}
      {{- with $values.extraEnvFrom }}
      envFrom: {{- toYaml . | nindent 8 }}
      {{- end }}
      ports:
        - {name: admin, containerPort: {{ $root.Values.metrics.port }}}
        {{- range .ports }}
        - {name: {{ .name }}, containerPort: {{ .port }}}
        {{- end }}
      {{- if not .isJob }}
      # A replay may take minutes; liveness never depends on the store.
      startupProbe: {httpGet: {path: /livez, port: admin}, periodSeconds: 5, timeoutSeconds: 3, failureThreshold: 120}
      livenessProbe: {httpGet: {path: /livez, port: admin}, periodSeconds: 10, timeoutSeconds: 5, failureThreshold: 6}
      readinessProbe: {httpGet: {path: /readyz, port: admin}, periodSeconds: 5, timeoutSeconds: 3}
      lifecycle: {preStop: {sleep: {seconds: 5}}}
      {{- end }}
      resources: {{- toYaml $values.resources | nindent 8 }}
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities: {drop: [ALL]}
      volumeMounts:
        - {name: config, mountPath: /etc/shale/config, readOnly: true}
        - {name: tmp, mountPath: /tmp}
        - {name: cache, mountPath: /var/cache/shale}
        {{- if $secrets }}
        - {name: secrets, mountPath: /etc/shale/secrets, readOnly: true}
        {{- end }}
        {{- if $root.Values.encryption.existingSecret }}
        - {name: encryption, mountPath: /etc/shale/encryption, readOnly: true}
        {{- end }}
        {{- with $values.extraVolumeMounts }}{{ toYaml . | nindent 8 }}{{ end }}
  volumes:
    - {name: config, configMap: {name: {{ include "shale.fullname" $root }}}}
    - {name: tmp, emptyDir: {}}
    - {name: cache, emptyDir: {}}
    {{- if $secrets }}
    - name: secrets
      projected:
        sources:
          {{- with $root.Values.objectStore }}
          {{- if .existingSecret }}
          - secret:
              name: {{ .existingSecret }}
              items:
                - {key: {{ .secretKeys.accessKeyId }}, path: store__access_key_id}
                - {key: {{ .secretKeys.secretAccessKey }}, path: store__secret_access_key}
          {{- end }}
          {{- end }}
          {{- with $root.Values.auth }}
          {{- if .existingSecret }}
          {{- with .secretKey }}
          - secret: {name: {{ $root.Values.auth.existingSecret }}, items: [{key: {{ . }}, path: http__bearer_token}]}
          {{- end }}
          {{- $secret := .existingSecret }}
          {{- range $role, $key := .roleKeys }}
          - secret: {name: {{ $secret }}, items: [{key: {{ $key }}, path: tokens__{{ $role }}}]}
          {{- end }}
          {{- end }}
          {{- end }}
    {{- end }}
    {{- with $root.Values.encryption }}
    {{- if .existingSecret }}
    - {name: encryption, secret: {secretName: {{ .existingSecret }}, items: [{key: {{ .secretKey }}, path: keys}]}}
    {{- end }}
    {{- end }}
    {{- with $values.extraVolumes }}{{ toYaml . | nindent 4 }}{{ end }}
{{- end }}

{{- /* One Deployment; what a pod takes, and replicas, strategy, scaled. */ -}}
{{- define "shale.deployment" -}}
{{- $root := .root -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ include "shale.fullname" $root }}-{{ .role }}
  namespace: {{ $root.Release.Namespace }}
  labels: {{- include "shale.labels" . | nindent 4 }}
spec:
  {{- if not .scaled }}
  replicas: {{ .replicas }}
  {{- end }}
  strategy: {type: {{ .strategy }}}
  selector:
    matchLabels: {{- include "shale.selector" . | nindent 6 }}
  template:
{{ include "shale.pod" . | indent 4 }}
{{- end }}

{{- define "shale.service" -}}
apiVersion: v1
kind: Service
metadata:
  name: {{ include "shale.fullname" .root }}-{{ .role }}
  namespace: {{ .root.Release.Namespace }}
  labels: {{- include "shale.labels" . | nindent 4 }}
  {{- with .values.service.annotations }}
  annotations: {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  type: {{ .values.service.type }}
  selector: {{- include "shale.selector" . | nindent 4 }}
  ports:
    - {name: http, port: {{ .values.service.port }}, targetPort: http}
    {{- with .values.resp }}
    {{- if .enabled }}
    - {name: resp, port: {{ .port }}, targetPort: resp}
    {{- end }}
    {{- end }}
{{- end }}

{{- /* An autoscaler and a disruption budget, for roles that may be many. */ -}}
{{- define "shale.many" -}}
{{- if .values.autoscaling.enabled }}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata:
  name: {{ include "shale.fullname" .root }}-{{ .role }}
  namespace: {{ .root.Release.Namespace }}
  labels: {{- include "shale.labels" . | nindent 4 }}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: {{ include "shale.fullname" .root }}-{{ .role }}}
  minReplicas: {{ .values.autoscaling.minReplicas }}
  maxReplicas: {{ .values.autoscaling.maxReplicas }}
  metrics:
    - type: Resource
      resource: {name: cpu, target: {type: Utilization, averageUtilization: {{ .values.autoscaling.targetCPUUtilizationPercentage }}}}
{{- end }}
{{- if .values.pdb.enabled }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ include "shale.fullname" .root }}-{{ .role }}
  namespace: {{ .root.Release.Namespace }}
  labels: {{- include "shale.labels" . | nindent 4 }}
spec:
  maxUnavailable: {{ .values.pdb.maxUnavailable }}
  selector:
    matchLabels: {{- include "shale.selector" . | nindent 6 }}
{{- end }}
{{- end }}
