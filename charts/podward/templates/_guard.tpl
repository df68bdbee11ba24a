{{/*
Metadata of the objects of the uninstall guard. Takes {root, weight}. Helm creates the objects before it removes the
release, and replaces those of a failed attempt.
*/}}
{{- define "podward.guardMetadata" -}}
name: podward-uninstall-guard
labels:
  {{- include "podward.labels" .root | nindent 2 }}
annotations:
  helm.sh/hook: pre-delete
  helm.sh/hook-weight: {{ .weight | quote }}
  helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
  # `helm uninstall` prints the log if the job fails.
  helm.sh/hook-output-log-policy: hook-failed
{{- end }}

{{- define "podward.guardSubjects" -}}
subjects:
  - kind: ServiceAccount
    name: podward-uninstall-guard
    namespace: {{ .Release.Namespace }}
{{- end }}
