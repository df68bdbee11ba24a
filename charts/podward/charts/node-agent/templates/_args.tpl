{{- define "node-agent.args" -}}
- --bind=[::]:{{ .Values.global.nodeAgent.port }}
- --admin-bind=[::]:{{ .Values.global.nodeAgent.adminPort }}
- --traffic-controller-user=system:serviceaccount:{{ .Release.Namespace }}:traffic-controller
{{- end }}
