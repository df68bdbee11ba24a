{{/* Names. The chart, the Service, the account and the Deployment have the name of the service. */}}

{{/* The labels of all objects. */}}
{{- define "podward.labels" -}}
{{ include "podward.selector" . }}
app.kubernetes.io/part-of: podward
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{/* The labels that select the pods of a service. */}}
{{- define "podward.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* The image of a service. Takes {root, values}. */}}
{{- define "podward.image" -}}
{{- $image := .root.Values.global.image }}
{{- $path := compact (list (trimSuffix "/" $image.registry) $image.repository .root.Chart.Name) | join "/" }}
{{- .values.image | default (printf "%s:%s" $path ($image.tag | default .root.Chart.AppVersion)) }}
{{- end }}

{{/* The user name of the lifecycle-controller. */}}
{{- define "podward.controllerUser" -}}
system:serviceaccount:{{ .Release.Namespace }}:lifecycle-controller
{{- end }}

{{/* The URL of the gRPC server of the lifecycle-controller. */}}
{{- define "podward.controllerUrl" -}}
https://lifecycle-controller.{{ .Release.Namespace }}.svc:9444
{{- end }}

{{/* The name of the Secret with the certificate of a service. */}}
{{- define "podward.tlsSecret" -}}
{{ .Chart.Name }}-tls
{{- end }}
