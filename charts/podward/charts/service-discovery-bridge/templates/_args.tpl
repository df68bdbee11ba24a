{{/* How many replicas can share the bindings. */}}
{{- define "service-discovery-bridge.slots" -}}
16
{{- end }}

{{- define "service-discovery-bridge.args" -}}
- --controller-url={{ include "podward.controllerUrl" . }}
- --token-file=/var/run/secrets/podward/token
- --node-unreachable-limit={{ .Values.global.nodeUnreachableLimitSeconds }}
{{- with .Values.clusterId }}
- --cluster-id={{ . }}
{{- end }}
{{- if .Values.kruise }}
- --kruise
{{- end }}
{{- range .Values.global.allowedAddresses }}
- --allow-address={{ . }}
{{- end }}
{{- end }}
