{{- define "node-agent.args" -}}
- --bind=0.0.0.0:{{ .Values.global.nodeAgent.port }}
- --admin-bind=0.0.0.0:{{ .Values.global.nodeAgent.adminPort }}
- --traffic-controller-user=system:serviceaccount:{{ .Release.Namespace }}:traffic-controller
{{- end }}
