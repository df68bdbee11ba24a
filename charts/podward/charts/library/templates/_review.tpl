{{/* The arguments of the review of writes to pods. Both webhooks must decide in the same way. */}}
{{- define "podward.reviewArgs" -}}
- --controller-user={{ include "podward.controllerUser" . }}
{{- range .Values.global.trustedWriters }}
- {{ printf "--trusted-writer=%s" . | quote }}
{{- end }}
{{- if .Values.global.strict }}
- --strict
{{- end }}
{{- with .Values.global.apiServerClient }}
{{- if .names }}
- --client-ca=/etc/podward/client-ca/ca.crt
{{- range .names }}
- --client-name={{ . }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* The volume with the authority of the API servers' client certificates. Takes the context of the chart. */}}
{{- define "podward.clientAuthorityVolume" -}}
{{- with .Values.global.apiServerClient -}}
- name: client-ca
  {{- if .caSecret }}
  secret:
    secretName: {{ .caSecret }}
  {{- else }}
  configMap:
    name: {{ .caConfigMap }}
  {{- end }}
    items: [{key: {{ .key }}, path: ca.crt}]
{{- end }}
{{- end }}

{{/*
The right of a webhook to read the accepted secrets of webhook paths. Each replica watches the Secret, so that it accepts
a new secret before the API server uses it.
*/}}
{{- define "podward.webhookPathReader" -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: {{ .Chart.Name }}-path
  namespace: {{ .Release.Namespace }}
  labels:
    {{- include "podward.labels" . | nindent 4 }}
rules:
  - apiGroups: [""]
    resources: [secrets]
    resourceNames: [podward-webhook-path]
    verbs: [list, watch]
---
{{ include "podward.binding" (dict "root" . "role" (printf "%s-path" .Chart.Name)) }}
{{- end }}
