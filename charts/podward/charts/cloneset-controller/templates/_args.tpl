{{- define "cloneset-controller.args" -}}
- --lease-namespace={{ .Release.Namespace }}
- --lease-duration={{ .Values.leaseDurationSeconds }}
- --mode={{ .mode }}
{{- end }}
