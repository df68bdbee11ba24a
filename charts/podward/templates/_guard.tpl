{{/*
Metadata of what the uninstall guard is made of; takes {root, weight}. It is there while a release is uninstalled, before anything
else of it is removed. What a try that has failed left behind makes room for the next.
*/}}
{{- define "podward.guardMetadata" -}}
name: podward-uninstall-guard
labels:
  {{- include "podward.labels" .root | nindent 2 }}
annotations:
  helm.sh/hook: pre-delete
  helm.sh/hook-weight: {{ .weight | quote }}
  helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
  # So that `helm uninstall` itself prints why it has failed.
  helm.sh/hook-output-log-policy: hook-failed
{{- end }}

{{- define "podward.guardSubjects" -}}
subjects:
  - kind: ServiceAccount
    name: podward-uninstall-guard
    namespace: {{ .Release.Namespace }}
{{- end }}
