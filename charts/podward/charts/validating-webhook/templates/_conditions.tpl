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
