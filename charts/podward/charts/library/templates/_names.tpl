{{/* What things are called. A service's chart is named after the service, and so are its Service, account and Deployment. */}}

{{/* Labels of every object. */}}
{{- define "podward.labels" -}}
{{ include "podward.selector" . }}
app.kubernetes.io/part-of: podward
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{/* Labels that find the pods of a service. */}}
{{- define "podward.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* The image of a service; takes {root, values}. */}}
{{- define "podward.image" -}}
{{- $image := .root.Values.global.image }}
{{- $path := compact (list (trimSuffix "/" $image.registry) $image.repository .root.Chart.Name) | join "/" }}
{{- .values.image | default (printf "%s:%s" $path ($image.tag | default .root.Chart.AppVersion)) }}
{{- end }}

{{/* The user that the lifecycle-controller is for the API server. */}}
{{- define "podward.controllerUser" -}}
system:serviceaccount:{{ .Release.Namespace }}:lifecycle-controller
{{- end }}

{{/* The lifecycle-controller's gRPC, for other services. */}}
{{- define "podward.controllerUrl" -}}
https://lifecycle-controller.{{ .Release.Namespace }}.svc:9444
{{- end }}

{{/* The Secret with a service's certificate. */}}
{{- define "podward.tlsSecret" -}}
{{ .Chart.Name }}-tls
{{- end }}
