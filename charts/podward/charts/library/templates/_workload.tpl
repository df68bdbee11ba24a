{{/*
The objects that run a service. Takes

  root         the context of the chart of the service
  port         {name, number, service}: the name and the number of the container's port, and the port of the Service.
               None if the service only calls others
  certificate  false if the service has none
  tokens       file name -> audience: the tokens that the service uses to authenticate to other services
  preStop      true if the service has no drain delay of its own
  reviews      true if the service is a webhook, to which API servers authenticate if global.apiServerClient says so

The chart defines `<service>.args`, a YAML list of arguments, and optionally `<service>.env`, a list of environment
variables.
*/}}
{{- define "podward.workload" -}}
{{- $values := include "podward.values" .root | fromYaml }}
{{- $of := merge (dict "values" $values) . }}
{{- include "podward.deployment" $of }}
---
{{ include "podward.service" $of }}
{{- if gt (include "podward.fewestPods" .root | int) 1 }}
---
{{ include "podward.disruptionBudget" .root }}
{{- end }}
{{- if $values.autoscaling.enabled }}
---
{{ include "podward.autoscaler" $of }}
{{- end }}
{{- if $values.networkPolicy.enabled }}
---
{{ include "podward.networkPolicy" $of }}
{{- end }}
{{- if $values.serviceMonitor.enabled }}
---
{{ include "podward.serviceMonitor" $of }}
{{- end }}
{{- end }}

{{- define "podward.metadata" -}}
metadata:
  name: {{ .Chart.Name }}
  namespace: {{ .Release.Namespace }}
  labels:
    {{- include "podward.labels" . | nindent 4 }}
{{- end }}

{{- define "podward.service" -}}
apiVersion: v1
kind: Service
{{ include "podward.metadata" .root }}
spec:
  selector:
    {{- include "podward.selector" .root | nindent 4 }}
  ports:
    {{- with .port }}
    - name: {{ .name }}
      port: {{ .service }}
      targetPort: {{ .name }}
    {{- end }}
    - name: admin
      port: 8080
      targetPort: admin
{{- end }}

{{/* AlwaysAllow: pods that are not ready do not block drains of nodes. */}}
{{- define "podward.disruptionBudget" -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
{{ include "podward.metadata" . }}
spec:
  maxUnavailable: 1
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels:
      {{- include "podward.selector" . | nindent 6 }}
{{- end }}

{{- define "podward.autoscaler" -}}
{{- with .values.autoscaling }}
{{- if gt (int .minReplicas) (int .maxReplicas) }}
{{- fail (printf "%s: autoscaling.minReplicas (%d) is larger than autoscaling.maxReplicas (%d)" $.root.Chart.Name
  (int .minReplicas) (int .maxReplicas)) }}
{{- end }}
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
{{ include "podward.metadata" $.root }}
spec:
  scaleTargetRef:
    apiVersion: apps/v1
    kind: Deployment
    name: {{ $.root.Chart.Name }}
  minReplicas: {{ .minReplicas }}
  maxReplicas: {{ .maxReplicas }}
  metrics:
    - type: Resource
      resource:
        name: cpu
        target:
          type: Utilization
          averageUtilization: {{ .targetCPUUtilizationPercentage }}
{{- end }}
{{- end }}

{{- define "podward.networkPolicy" -}}
{{- with .values.networkPolicy }}
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
{{ include "podward.metadata" $.root }}
spec:
  podSelector:
    matchLabels:
      {{- include "podward.selector" $.root | nindent 6 }}
  policyTypes: {{ .egress | empty | ternary "[Ingress]" "[Ingress, Egress]" }}
  ingress:
    {{- if $.port }}
    - ports: [{port: {{ $.port.name }}}]
      {{- with .from }}
      from:
        {{- toYaml . | nindent 8 }}
      {{- end }}
    {{- end }}
    - ports: [{port: admin}]
      {{- with .adminFrom }}
      from:
        {{- toYaml . | nindent 8 }}
      {{- end }}
  {{- with .egress }}
  egress:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}
{{- end }}

{{- define "podward.serviceMonitor" -}}
{{- with .values.serviceMonitor }}
apiVersion: monitoring.coreos.com/v1
kind: ServiceMonitor
metadata:
  name: {{ $.root.Chart.Name }}
  namespace: {{ $.root.Release.Namespace }}
  labels:
    {{- merge (deepCopy .labels) (include "podward.labels" $.root | fromYaml) | toYaml | nindent 4 }}
spec:
  selector:
    matchLabels:
      {{- include "podward.selector" $.root | nindent 6 }}
  endpoints:
    - port: admin
      path: /metrics
      {{- with .interval }}
      interval: {{ . }}
      {{- end }}
{{- end }}
{{- end }}
