{{- define "traffic-controller.args" -}}
- --controller-user={{ include "podward.controllerUser" . }}
- --advertise-url=https://traffic-controller.{{ .Release.Namespace }}.svc:9443
- --controller-url={{ include "podward.controllerUrl" . }}
- --token-file=/var/run/secrets/podward/token
{{- with .Values.kubeProxyMetricsUrl }}
- --kube-proxy-metrics-url={{ . }}
{{- end }}
{{- if .Values.canary.enabled }}
- --canary-service=traffic-controller-canary
{{- end }}
{{- with .Values.global.nodeAgent }}
{{- if .enabled }}
- --node-agent-url=https://{node_ip}:{{ .port }}
- --node-agent-name=node-agent.{{ $.Release.Namespace }}.svc
- --node-agent-token-file=/var/run/secrets/podward/node-agent-token
{{- end }}
{{- end }}
{{- with .Values.waits }}
- --propagation={{ .propagationSeconds }}
- --quiet-period={{ .quietPeriodSeconds }}
- --connection-wait={{ .connectionWaitSeconds }}
- --dns-ttl={{ .dnsTtlSeconds }}
- --surge-wait={{ .surgeWaitSeconds }}
{{- end }}
{{- end }}
