{{- define "mutating-webhook.args" -}}
{{ include "podward.reviewArgs" . }}
{{- if .Values.dropManagedFields }}
- --drop-managed-fields
{{- end }}
{{- end }}
