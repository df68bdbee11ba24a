{{/*
The values of a service as YAML: its own values, and the defaults. Templates parse it with fromYaml, so convert numbers
that may be large with `int`.
*/}}
{{- define "podward.values" -}}
{{- omit (mergeOverwrite (deepCopy .Values.global.defaults) .Values) "global" | toYaml }}
{{- end }}

{{/* The time for requests in flight during the shutdown, in seconds. Covers deletes that wait (--wait). */}}
{{- define "podward.drainTimeout" -}}
{{- $values := include "podward.values" . | fromYaml }}
{{- $wait := int ($values.waitSeconds | default 0) }}
{{- max (int $values.drain.timeoutSeconds) (ternary (add $wait 5) 0 (gt $wait 0)) }}
{{- end }}

{{/* The smallest number of pods of a service. */}}
{{- define "podward.fewestPods" -}}
{{- $values := include "podward.values" . | fromYaml }}
{{- ternary $values.autoscaling.minReplicas $values.replicas $values.autoscaling.enabled | int }}
{{- end }}
