{{/* Deletes and evictions that are let through in any case: the lifecycle-controller's own, which come when everybody has let go,
and dry runs. */}}
{{- define "validating-webhook.conditions" -}}
- name: everybody-has-not-let-go
  expression: request.userInfo.username != '{{ include "podward.controllerUser" . }}'
- name: something-comes-of-it
  expression: "!(has(request.dryRun) && request.dryRun)"
{{- end }}
