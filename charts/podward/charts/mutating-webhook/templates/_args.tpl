{{- define "mutating-webhook.args" -}}
{{ include "podward.reviewArgs" . }}
{{- end }}
