{{/* Metadata of what `helm test` is made of; takes {root, weight}. It is there while the test runs, but for a pod that has failed. */}}
{{- define "podward.doctorMetadata" -}}
name: podward-doctor
labels:
  {{- include "podward.labels" .root | nindent 2 }}
annotations:
  helm.sh/hook: test
  helm.sh/hook-weight: {{ .weight | quote }}
  helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
  # So that `helm test` itself prints what was found.
  helm.sh/hook-output-log-policy: hook-succeeded,hook-failed
{{- end }}

{{- define "podward.doctorSubjects" -}}
subjects:
  - kind: ServiceAccount
    name: podward-doctor
    namespace: {{ .Release.Namespace }}
{{- end }}
