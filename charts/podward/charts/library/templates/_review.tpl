{{/* The arguments of the review of writes to pods. Both webhooks must decide in the same way. */}}
{{- define "podward.reviewArgs" -}}
- --controller-user={{ include "podward.controllerUser" . }}
{{- range .Values.global.trustedWriters }}
- --trusted-writer={{ . }}
{{- end }}
{{- if .Values.global.strict }}
- --strict
{{- end }}
{{- end }}
