{{/* Arguments of the judgement of writes to pods: both webhooks have to judge alike. */}}
{{- define "podward.reviewArgs" -}}
- --controller-user={{ include "podward.controllerUser" . }}
{{- range .Values.global.trustedWriters }}
- --trusted-writer={{ . }}
{{- end }}
{{- if .Values.global.strict }}
- --strict
{{- end }}
{{- end }}
