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

{{/*
The image of a service. Takes {root, values}. There is no default registry: Podward's images are not published, and a
name without a registry would be pulled from wherever the container runtime looks, from whoever owns the name there.
*/}}
{{- define "podward.image" -}}
{{- $image := .root.Values.global.image }}
{{- $name := .root.Chart.Name }}
{{- if .values.image }}
{{- .values.image }}
{{- else if $image.registry }}
{{- $path := compact (list (trimSuffix "/" $image.registry) $image.repository $name) | join "/" }}
{{- printf "%s:%s" $path ($image.tag | default .root.Chart.AppVersion) }}
{{- else }}
{{- fail (printf (print "no registry is set for the image of %s: set global.image.registry to the registry that has "
  "your images of Podward, for example --set global.image.registry=registry.example.com, or set %s.image to a complete "
  "image") $name $name) }}
{{- end }}
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
