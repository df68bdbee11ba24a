{{/*
The guards: jobs of the plugin of kubectl that run before `helm uninstall` and `helm rollback`.

Metadata of the objects of a guard. Takes {root, name, hook, weight}. Helm creates the objects before it changes the
release, and replaces those of a failed attempt.
*/}}
{{- define "podward.guardMetadata" -}}
name: {{ .name }}
labels:
  {{- include "podward.labels" .root | nindent 2 }}
annotations:
  helm.sh/hook: {{ .hook }}
  helm.sh/hook-weight: {{ .weight | quote }}
  helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
  # Helm prints the log if the job fails.
  helm.sh/hook-output-log-policy: hook-failed
{{- end }}

{{/* The account of a guard. Takes {root, name, hook}. */}}
{{- define "podward.guardAccount" -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  {{- include "podward.guardMetadata" (merge (dict "weight" -3) .) | nindent 2 }}
  namespace: {{ .root.Release.Namespace }}
automountServiceAccountToken: false
{{- end }}

{{/* The binding of the guard's role of the same name. Takes {root, name, hook, kind}: kind is Role or ClusterRole. */}}
{{- define "podward.guardBinding" -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ .kind }}Binding
metadata:
  {{- include "podward.guardMetadata" (merge (dict "weight" -1) .) | nindent 2 }}
  {{- if eq .kind "Role" }}
  namespace: {{ .root.Release.Namespace }}
  {{- end }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ .kind }}
  name: {{ .name }}
subjects:
  - kind: ServiceAccount
    name: {{ .name }}
    namespace: {{ .root.Release.Namespace }}
{{- end }}

{{/*
The job of a guard. Takes {root, name, hook, component, container, args, timeout, retries}: the timeout in seconds.
*/}}
{{- define "podward.guardJob" -}}
{{- $root := .root }}
{{- $defaults := $root.Values.global.defaults }}
{{- $plugin := dict "Chart" (dict "Name" "kubectl-podward" "AppVersion" $root.Chart.AppVersion) "Values" $root.Values }}
{{- $image := include "podward.image" (dict "root" $plugin "values" (index $root.Values "kubectl-podward" | default dict)) -}}
apiVersion: batch/v1
kind: Job
metadata:
  {{- include "podward.guardMetadata" (merge (dict "weight" 0) .) | nindent 2 }}
  namespace: {{ $root.Release.Namespace }}
spec:
  backoffLimit: {{ .retries }}
  activeDeadlineSeconds: {{ .timeout }}
  template:
    metadata:
      labels:
        {{- include "podward.selector" $root | nindent 8 }}
        app.kubernetes.io/component: {{ .component }}
        app.kubernetes.io/part-of: podward
    spec:
      serviceAccountName: {{ .name }}
      automountServiceAccountToken: true
      enableServiceLinks: false
      restartPolicy: Never
      {{- with $root.Values.global.image.pullSecrets }}
      imagePullSecrets:
        {{- range . }}
        - name: {{ . }}
        {{- end }}
      {{- end }}
      {{- with $defaults.priorityClassName }}
      priorityClassName: {{ . }}
      {{- end }}
      securityContext:
        runAsNonRoot: true
        {{- with $defaults.runAsUser }}
        runAsUser: {{ int . }}
        runAsGroup: {{ int . }}
        {{- end }}
        seccompProfile:
          type: RuntimeDefault
      {{- with $defaults.nodeSelector }}
      nodeSelector:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $defaults.tolerations }}
      tolerations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      containers:
        - name: {{ .container }}
          image: {{ $image }}
          imagePullPolicy: {{ $root.Values.global.image.pullPolicy }}
          args:
            {{- range .args }}
            - {{ . }}
            {{- end }}
          resources:
            requests: {cpu: 50m, memory: 64Mi}
            limits: {memory: 256Mi}
          securityContext:
            allowPrivilegeEscalation: false
            readOnlyRootFilesystem: true
            capabilities:
              drop: [ALL]
          # Shows the end of the log in the status of the pod.
          terminationMessagePolicy: FallbackToLogsOnError
{{- end }}
