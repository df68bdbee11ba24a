{{- define "lifecycle-controller.args" -}}
{{- $certificates := .Values.global.certificates -}}
- --lease-namespace={{ .Release.Namespace }}
- --lease-duration={{ .Values.leaseDurationSeconds }}
- --drain-timeout={{ include "podward.drainTimeout" . }}
- --max-busy={{ int .Values.maxBusySeconds }}
{{- if .Values.checkDeletesAsRequester }}
- --check-deletes-as-requester
{{- end }}
- --advertise=$(POD_IP):9444
- --relay-server-name=lifecycle-controller.{{ .Release.Namespace }}.svc
- --token-file=/var/run/secrets/podward/token
- --hook-token-account={{ .Release.Namespace }}/{{ .Chart.Name }}
- --controller-user={{ include "podward.controllerUser" . }}
- --trusted-requester=system:serviceaccount:{{ .Release.Namespace }}:validating-webhook
- --node-unreachable-limit={{ .Values.global.nodeUnreachableLimitSeconds }}
- --webhook-paths=true
- --webhook-path-rotation={{ int .Values.global.webhookPath.rotationSeconds }}
- --webhook-path-overlap={{ int .Values.global.webhookPath.overlapSeconds }}
{{- range .Values.global.allowedAddresses }}
- --allow-address={{ . }}
{{- end }}
{{- if eq $certificates.provider "podward" }}
- --certificates=true
- --certificate-lifetime={{ int $certificates.lifetimeSeconds }}
- --ca-lifetime={{ int $certificates.caLifetimeSeconds }}
{{- else }}
- --certificates=false
{{- end }}
{{- end }}
