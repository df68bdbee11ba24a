{{/*
The values of a service: its own, before those that all have in common. As YAML: templates read it back by fromYaml, so numbers
that may be large go through `int`.
*/}}
{{- define "podward.values" -}}
{{- omit (mergeOverwrite (deepCopy .Values.global.defaults) .Values) "global" | toYaml }}
{{- end }}

{{/* Seconds that requests in flight get when a pod ends. A delete that waits (--wait) is one. */}}
{{- define "podward.drainTimeout" -}}
{{- $values := include "podward.values" . | fromYaml }}
{{- $wait := int ($values.waitSeconds | default 0) }}
{{- max (int $values.drain.timeoutSeconds) (ternary (add $wait 5) 0 (gt $wait 0)) }}
{{- end }}

{{/* The fewest pods that a service has. */}}
{{- define "podward.fewestPods" -}}
{{- $values := include "podward.values" . | fromYaml }}
{{- ternary $values.autoscaling.minReplicas $values.replicas $values.autoscaling.enabled | int }}
{{- end }}
