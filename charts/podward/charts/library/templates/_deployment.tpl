{{- define "podward.deployment" -}}
{{- $name := .root.Chart.Name }}
apiVersion: apps/v1
kind: Deployment
{{ include "podward.metadata" .root }}
spec:
  {{- if not .values.autoscaling.enabled }}
  replicas: {{ .values.replicas }}
  {{- end }}
  revisionHistoryLimit: 5
  # A new pod becomes ready before an old one is deleted.
  strategy:
    type: RollingUpdate
    rollingUpdate:
      maxUnavailable: 0
      maxSurge: 1
  selector:
    matchLabels:
      {{- include "podward.selector" .root | nindent 6 }}
  template:
    metadata:
      labels:
        {{- merge (include "podward.selector" .root | fromYaml) (dict "app.kubernetes.io/part-of" "podward") .values.podLabels
          | toYaml | nindent 8 }}
      {{- with merge (dict "kubectl.kubernetes.io/default-container" $name) .values.podAnnotations }}
      annotations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
    spec:
      {{- include "podward.pod" . | nindent 6 }}
      containers:
        - name: {{ $name }}
          {{- include "podward.container" . | nindent 10 }}
      {{- $namesClients := and .reviews .root.Values.global.apiServerClient.names }}
      {{- if or .tokens $namesClients .values.extraVolumes }}
      volumes:
        {{- with .tokens }}
        # Tokens that are valid only for the named audience.
        - name: tokens
          projected:
            sources:
              {{- range $path, $audience := . }}
              - serviceAccountToken: {path: {{ $path }}, audience: {{ $audience }}, expirationSeconds: 3600}
              {{- end }}
        {{- end }}
        {{- if $namesClients }}
        # The authority of the API servers' client certificates.
        {{- include "podward.clientAuthorityVolume" .root | nindent 8 }}
        {{- end }}
        {{- with .values.extraVolumes }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- end }}
{{- end }}

{{- define "podward.pod" -}}
serviceAccountName: {{ .root.Chart.Name }}
automountServiceAccountToken: true
enableServiceLinks: false
{{- with .root.Values.global.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- with .values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
terminationGracePeriodSeconds: {{ add .values.drain.delaySeconds (include "podward.drainTimeout" .root | int) 5 }}
securityContext:
  runAsNonRoot: true
  {{- with .values.runAsUser }}
  runAsUser: {{ int . }}
  runAsGroup: {{ int . }}
  {{- end }}
  seccompProfile:
    type: RuntimeDefault
{{- with .values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
affinity:
  {{- if .values.affinity }}
  {{- toYaml .values.affinity | nindent 2 }}
  {{- else }}
  podAntiAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 100
        podAffinityTerm:
          topologyKey: kubernetes.io/hostname
          labelSelector:
            matchLabels:
              {{- include "podward.selector" .root | nindent 14 }}
  {{- end }}
topologySpreadConstraints:
  {{- if .values.topologySpreadConstraints }}
  {{- toYaml .values.topologySpreadConstraints | nindent 2 }}
  {{- else }}
  - maxSkew: 1
    topologyKey: topology.kubernetes.io/zone
    whenUnsatisfiable: ScheduleAnyway
    # Count only the pods of the new version during an upgrade.
    matchLabelKeys: [pod-template-hash]
    labelSelector:
      matchLabels:
        {{- include "podward.selector" .root | nindent 8 }}
  {{- end }}
{{- end }}

{{- define "podward.container" -}}
{{- $name := .root.Chart.Name -}}
{{- $global := .root.Values.global -}}
image: {{ include "podward.image" . }}
imagePullPolicy: {{ $global.image.pullPolicy }}
args:
  - --log={{ .values.log.level }}
  - --log-format={{ .values.log.format }}
  {{- with $global.tracing.endpoint }}
  - --otlp-endpoint={{ . }}
  {{- end }}
  {{- if ne .certificate false }}
  - --tls-secret={{ include "podward.tlsSecret" .root }}
  {{- end }}
  {{- if and .port (not .preStop) }}
  - --drain-delay={{ .values.drain.delaySeconds }}
  - --drain-timeout={{ include "podward.drainTimeout" .root }}
  {{- end }}
  {{- include (printf "%s.args" $name) .root | trim | nindent 2 }}
  {{- with .values.extraArgs }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
env:
  - name: PODWARD_NAMESPACE
    valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
  {{- /* A container that is started again takes over the Lease of its former process. */}}
  {{- if .values.leaseDurationSeconds }}
  - name: PODWARD_POD_UID
    valueFrom: {fieldRef: {fieldPath: metadata.uid}}
  {{- end }}
  {{- with .env }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
  {{- with .values.extraEnv }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
ports:
  {{- with .port }}
  - name: {{ .name }}
    containerPort: {{ .number }}
  {{- end }}
  - name: admin
    containerPort: {{ .adminPort | default 8080 }}
# The process answers as soon as it runs, even while it waits for its certificate.
startupProbe:
  httpGet: {path: /livez, port: admin}
  periodSeconds: 1
  failureThreshold: 60
livenessProbe:
  httpGet: {path: /livez, port: admin}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
readinessProbe:
  httpGet: {path: /readyz, port: admin}
  periodSeconds: 2
  timeoutSeconds: 2
  failureThreshold: 3
{{- if and .preStop (gt (int .values.drain.delaySeconds) 0) }}
lifecycle:
  preStop:
    sleep:
      seconds: {{ .values.drain.delaySeconds }}
{{- end }}
{{- with .values.resources }}
resources:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
    {{- with .capabilities }}
    add: {{ toJson . }}
    {{- end }}
{{- $namesClients := and .reviews $global.apiServerClient.names }}
{{- if or .tokens $namesClients .values.extraVolumeMounts }}
volumeMounts:
  {{- if .tokens }}
  - name: tokens
    mountPath: /var/run/secrets/podward
    readOnly: true
  {{- end }}
  {{- if $namesClients }}
  - name: client-ca
    mountPath: /etc/podward/client-ca
    readOnly: true
  {{- end }}
  {{- with .values.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}
{{- end }}
