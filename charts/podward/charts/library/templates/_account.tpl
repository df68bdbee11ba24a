{{/* The account of a service, and its binding to the ClusterRole podward-<service> of its chart. */}}
{{- define "podward.serviceAccount" -}}
apiVersion: v1
kind: ServiceAccount
{{ include "podward.metadata" . }}
automountServiceAccountToken: false
---
{{ include "podward.clusterBinding" (dict "root" . "role" (printf "podward-%s" .Chart.Name)) }}
{{- end }}

{{/* The same, and the right to read the Secret with the certificate of the service. */}}
{{- define "podward.account" -}}
{{ include "podward.serviceAccount" . }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: {{ include "podward.tlsSecret" . }}
  namespace: {{ .Release.Namespace }}
  labels:
    {{- include "podward.labels" . | nindent 4 }}
rules:
  # The certificate of the service. Each replica watches it, so that it uses a renewed certificate immediately.
  - apiGroups: [""]
    resources: [secrets]
    resourceNames: [{{ include "podward.tlsSecret" . }}]
    verbs: [list, watch]
---
{{ include "podward.binding" (dict "root" . "role" (include "podward.tlsSecret" .)) }}
{{- end }}

{{/* Binds the account of a service to a ClusterRole. Takes {root, role}. */}}
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

{{/* Binds the account of a service to a Role in the namespace of the release. Takes {root, role}. */}}
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
