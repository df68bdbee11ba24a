{{/*
Who a service is: its account, what binds it to the ClusterRole podward-<service> that its chart writes, and the right to read
the one Secret with its certificate.
*/}}
{{- define "podward.account" -}}
apiVersion: v1
kind: ServiceAccount
{{ include "podward.metadata" . }}
automountServiceAccountToken: false
---
{{ include "podward.clusterBinding" (dict "root" . "role" (printf "podward-%s" .Chart.Name)) }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: {{ include "podward.tlsSecret" . }}
  namespace: {{ .Release.Namespace }}
  labels:
    {{- include "podward.labels" . | nindent 4 }}
rules:
  # Its own certificate, read through the API server: a renewed one is in use at once, on each replica.
  - apiGroups: [""]
    resources: [secrets]
    resourceNames: [{{ include "podward.tlsSecret" . }}]
    verbs: [list, watch]
---
{{ include "podward.binding" (dict "root" . "role" (include "podward.tlsSecret" .)) }}
{{- end }}

{{/* Binds a service to a ClusterRole; takes {root, role}. */}}
{{- define "podward.clusterBinding" -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: {{ .role }}
  labels:
    {{- include "podward.labels" .root | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: {{ .role }}
{{ include "podward.subjects" .root }}
{{- end }}

{{/* Binds a service to a Role of the release's namespace; takes {root, role}. */}}
{{- define "podward.binding" -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {{ .role }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "podward.labels" .root | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: {{ .role }}
{{ include "podward.subjects" .root }}
{{- end }}

{{- define "podward.subjects" -}}
subjects:
  - kind: ServiceAccount
    name: {{ .Chart.Name }}
    namespace: {{ .Release.Namespace }}
{{- end }}
