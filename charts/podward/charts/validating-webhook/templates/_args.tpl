{{- define "validating-webhook.args" -}}
{{ include "podward.reviewArgs" . }}
- --hold={{ .Values.global.deletionProtection }}
- --wait={{ .Values.waitSeconds }}
- --node-unreachable-limit={{ .Values.global.nodeUnreachableLimitSeconds }}
- --controller-url={{ include "podward.controllerUrl" . }}
- --token-file=/var/run/secrets/podward/token
{{- range .Values.global.allowedAddresses }}
- --allow-address={{ . }}
{{- end }}
{{- end }}
