{{/*
Metadata of the objects of `helm test`. Takes {root, weight}. Helm removes the objects after a successful test.
*/}}
{{- define "podward.doctorMetadata" -}}
name: podward-doctor
labels:
  {{- include "podward.labels" .root | nindent 2 }}
annotations:
  helm.sh/hook: test
  helm.sh/hook-weight: {{ .weight | quote }}
  helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
  # `helm test` prints the log.
  helm.sh/hook-output-log-policy: hook-succeeded,hook-failed
{{- end }}

{{- define "podward.doctorSubjects" -}}
subjects:
  - kind: ServiceAccount
    name: podward-doctor
    namespace: {{ .Release.Namespace }}
{{- end }}
