{{- /* A Deployment; takes what a pod takes, and replicas, scaled if an autoscaler sets them, waits if its pod may wait. */ -}}
{{- define "shale.deployment" -}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {{- include "shale.metadata" . | nindent 2 }}
spec:
  {{- if not .scaled }}
  replicas: {{ .replicas }}
  {{- end }}
  {{- if .waits }}
  # A pod that waits is not ready, and the rollout is complete all the same.
  strategy: {type: RollingUpdate, rollingUpdate: {maxSurge: 0, maxUnavailable: 1}}
  progressDeadlineSeconds: 2147483647
  {{- else }}
  strategy: {type: {{ .strategy }}}
  {{- end }}
  selector:
    matchLabels: {{- include "shale.selector" . | nindent 6 }}
  template: {{- include "shale.pod" . | nindent 4 }}
{{- end }}

{{- /* What the daemons writer and reader add to a workload: their ports and variables. */ -}}
{{- define "shale.dataPorts" -}}
{{- $ports := list (dict "name" "http" "port" 8080) }}
{{- $env := list }}
{{- if .values.resp.enabled }}
{{- $ports = append $ports (dict "name" "resp" "port" 6379) }}
{{- $env = append $env (dict "name" (printf "SHALE_%s__RESP__ENABLED" (upper .role)) "value" "true") }}
{{- end }}
{{- $_ := set . "ports" $ports }}
{{- $_ := set . "env" $env }}
{{- end }}

{{- /* A Service, an Ingress and an HTTPRoute for the data ports of a workload; pods are chosen by serviceSelector. */ -}}
{{- define "shale.dataServices" -}}
{{- $service := .values.service }}
---
apiVersion: v1
kind: Service
metadata: {{- include "shale.metadata" (merge (dict "annotations" $service.annotations) .) | nindent 2 }}
spec:
  type: {{ $service.type }}
  selector: {{- .serviceSelector | nindent 4 }}
  ports:
    - {name: http, port: {{ $service.port }}, targetPort: http{{ if include "shale.hasTls" .root }}, appProtocol: https{{ end }}}
    {{- if .values.resp.enabled }}
    - {name: resp, port: {{ .values.resp.port }}, targetPort: resp}
    {{- end }}
  {{- with $service.extraSpec }}{{ toYaml . | nindent 2 }}{{ end }}
{{- $ingress := include "shale.ofDatabase" (dict "values" .values.ingress "database" .database) | fromYaml }}
{{- if $ingress.enabled }}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {{- include "shale.metadata" (merge (dict "annotations" $ingress.annotations) .) | nindent 2 }}
spec:
  {{- with $ingress.className }}
  ingressClassName: {{ . }}
  {{- end }}
  rules:
    {{- $name := .name }}
    {{- if not $ingress.hosts }}{{ fail (printf "%s.ingress.hosts: which hosts lead to the %s?" .role .role) }}{{ end }}
    {{- range $ingress.hosts }}
    - host: {{ . | quote }}
      http:
        paths:
          - path: {{ $ingress.path }}
            pathType: {{ $ingress.pathType }}
            backend: {service: {name: {{ $name }}, port: {name: http}}}
    {{- end }}
  {{- with $ingress.tls }}
  tls: {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}
{{- $route := include "shale.ofDatabase" (dict "values" .values.httpRoute "database" .database) | fromYaml }}
{{- if $route.enabled }}
{{- include "shale.requireKind" (dict "root" .root "kind" "gateway.networking.k8s.io/v1/HTTPRoute" "value" (printf "%s.httpRoute" .role) "of" "the Gateway API") }}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {{- include "shale.metadata" (merge (dict "annotations" $route.annotations) .) | nindent 2 }}
spec:
  {{- if not $route.parentRefs }}{{ fail (printf "%s.httpRoute.parentRefs: which gateway takes the route?" .role) }}{{ end }}
  parentRefs: {{- toYaml $route.parentRefs | nindent 4 }}
  {{- with $route.hostnames }}
  hostnames: {{- toYaml . | nindent 4 }}
  {{- end }}
  rules:
    - matches: [{path: {type: PathPrefix, value: {{ $route.path }}}}]
      {{- with $route.filters }}
      filters: {{- toYaml . | nindent 8 }}
      {{- end }}
      backendRefs: [{name: {{ .name }}, port: {{ $service.port }}}]
{{- end }}
{{- end }}

{{- define "shale.pdb" -}}
{{- if .values.pdb.enabled }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {{- include "shale.metadata" . | nindent 2 }}
spec:
  maxUnavailable: {{ .values.pdb.maxUnavailable }}
  selector:
    matchLabels: {{- include "shale.selector" . | nindent 6 }}
{{- end }}
{{- end }}

{{- /* An autoscaler by CPU, by an external metric, or of KEDA by a query. */ -}}
{{- define "shale.autoscaler" -}}
{{- $role := .role }}
{{- $scaling := .values.autoscaling }}
{{- $backlog := default dict $scaling.backlog }}
{{- $keda := default dict $scaling.keda }}
{{- /* The labels db of the databases, whose backlogs count together. */}}
{{- $labels := list }}
{{- range default (list .database) .databases }}{{ $labels = append $labels (include "shale.dbLabel" .) }}{{ end }}
{{- if and $scaling.enabled $keda.enabled }}
{{- include "shale.requireKind" (dict "root" .root "kind" "keda.sh/v1alpha1/ScaledObject" "value" (printf "%s.autoscaling.keda" .role) "of" "KEDA") }}
{{- $query := printf "max(slatedb_compactor_backlog_jobs{namespace=%q, db=%q})" (include "shale.namespace" .root) (first $labels) }}
{{- if .databases }}
{{- $any := list }}
{{- range $labels }}{{ $any = append $any (regexQuoteMeta .) }}{{ end }}
{{- $query = printf "sum(max by (db) (slatedb_compactor_backlog_jobs{namespace=%q, db=~%q}))" (include "shale.namespace" .root) (join "|" $any) }}
{{- end }}
---
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata: {{- include "shale.metadata" . | nindent 2 }}
spec:
  scaleTargetRef: {name: {{ .name }}}
  minReplicaCount: {{ $scaling.minReplicas }}
  maxReplicaCount: {{ $scaling.maxReplicas }}
  pollingInterval: {{ $keda.pollingInterval }}
  cooldownPeriod: {{ $keda.cooldownPeriod }}
  triggers:
    - type: prometheus
      metadata:
        serverAddress: {{ required (printf "%s.autoscaling.keda.serverAddress: the URL of Prometheus" .role) $keda.serverAddress | quote }}
        query: {{ default $query $keda.query | quote }}
        threshold: {{ $keda.threshold | quote }}
    {{- with $keda.triggers }}{{ toYaml . | nindent 4 }}{{ end }}
{{- else if $scaling.enabled }}
{{- if lt (int $scaling.minReplicas) 1 }}{{ fail (printf "%s.autoscaling.minReplicas: only KEDA ends the last pod" .role) }}{{ end }}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {{- include "shale.metadata" . | nindent 2 }}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: {{ .name }}}
  minReplicas: {{ $scaling.minReplicas }}
  maxReplicas: {{ $scaling.maxReplicas }}
  metrics:
    {{- with $scaling.targetCPUUtilizationPercentage }}
    - type: Resource
      resource: {name: cpu, target: {type: Utilization, averageUtilization: {{ . }}}}
    {{- end }}
    {{- if $backlog.enabled }}
    - type: External
      external:
        metric:
          name: {{ $backlog.metric }}
          selector:
            {{- if $backlog.matchLabels }}
            matchLabels: {{- toYaml $backlog.matchLabels | nindent 14 }}
            {{- else }}
            {{- range $labels }}
            {{- if not (regexMatch "^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$" .) }}
            {{- fail (printf "%s.autoscaling.backlog: Kubernetes allows no label value %s: give the database an alias, or set backlog.matchLabels" $role .) }}
            {{- end }}
            {{- end }}
            matchLabels: {{- dict "namespace" (include "shale.namespace" .root) | toYaml | nindent 14 }}
            {{- if .databases }}
            matchExpressions: [{key: db, operator: In, values: {{ toJson $labels }}}]
            {{- else }}
              db: {{ first $labels | quote }}
            {{- end }}
            {{- end }}
        target: {type: AverageValue, averageValue: {{ $backlog.jobsPerWorker | quote }}}
    {{- end }}
{{- end }}
{{- end }}
