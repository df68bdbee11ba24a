{{/*
Excludes deletes and evictions that are always allowed: those of the lifecycle-controller, whose pods are drained, and
dry runs.
*/}}
{{- define "validating-webhook.conditions" -}}
- name: requester-is-not-the-lifecycle-controller
  expression: request.userInfo.username != '{{ include "podward.controllerUser" . }}'
- name: request-is-not-a-dry-run
  expression: "!(has(request.dryRun) && request.dryRun)"
{{- end }}

{{/* Excludes deletes that are always allowed. */}}
{{- define "validating-webhook.deleteConditions" -}}
- name: pod-is-not-terminating
  expression: "!has(oldObject.metadata.deletionTimestamp)"
- name: pod-is-bound-to-a-node
  expression: has(oldObject.spec.nodeName) && oldObject.spec.nodeName != ''
- name: pod-has-not-ended
  expression: "!(has(oldObject.status.phase) && oldObject.status.phase in ['Succeeded', 'Failed'])"
{{ include "validating-webhook.conditions" . }}
{{- end }}
