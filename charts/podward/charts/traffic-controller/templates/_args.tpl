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
{{- with .Values.waits }}
- --propagation={{ .propagationSeconds }}
- --quiet-period={{ .quietPeriodSeconds }}
- --dns-ttl={{ .dnsTtlSeconds }}
- --surge-wait={{ .surgeWaitSeconds }}
{{- end }}
{{- end }}
