{{/*
The common fields of all webhooks.

- namespaceSelector excludes the namespaces of the system and of Podward, so that an outage of Podward does not block
  the repair of Podward or of the cluster. It uses the label that the API server sets on each namespace.
- objectSelector: only opted-in pods. On UPDATE, the API server matches the old and the new object, so the webhook
  sees a pod that loses the label. On DELETE, it matches the old object.
- timeoutSeconds: a decision takes less than a millisecond. 2 s allow for a lost packet. If a replica hangs, each
  caller of the API server waits for this time.
- matchPolicy Equivalent: a pod is sent as v1, regardless of the version of the request.
- sideEffects None: the decisions change only the object, so dry runs get the same answers. To hold a pod has a side
  effect (the deletion request is recorded), except in a dry run: NoneOnDryRun.
- clientConfig has no caBundle: the issuer of the certificates sets it, and an upgrade does not change it.
- clientConfig.service has no path: the lifecycle-controller sets it to /<secret>/<route>, and an upgrade does not change
  it. The route follows from the name of the webhook (crates/core/src/webhook_path.rs). Until the path is set, the
  webhooks answer 404.
*/}}

{{/*
The annotations of a webhook configuration. Takes the context of the chart. cert-manager reads the authority from the
certificate of the authority, and not from that of the webhook, so that the authority is trusted before a certificate
of it is used.
*/}}
{{- define "podward.webhookAnnotations" -}}
{{- if eq .Values.global.certificates.provider "cert-manager" }}
annotations:
  cert-manager.io/inject-ca-from: {{ .Release.Namespace }}/podward-ca
{{- end }}
{{- end }}

{{/*
A webhook without its name and its individual fields. Takes root, operation (or several, separated by commas), resource
and failurePolicy. Optional: group, version, timeout, sideEffects, optedIn (false: do not select objects by the opt-in
label), everywhere (true: also in excluded namespaces), scope and injected (true: only namespaces that opt in all pods; false: only other namespaces, without those with the value disabled).
*/}}
{{- define "podward.webhook" -}}
{{- $always := list "kube-system" "kube-public" "kube-node-lease" .root.Release.Namespace -}}
clientConfig:
  service:
    name: {{ .root.Chart.Name }}
    namespace: {{ .root.Release.Namespace }}
    port: 443
rules:
  - apiGroups: [{{ .group | default "\"\"" }}]
    apiVersions: [{{ .version | default "v1" }}]
    operations: [{{ .operation }}]
    resources: [{{ .resource }}]
    scope: {{ .scope | default "Namespaced" }}
{{- if ne .optedIn false }}
objectSelector:
  matchLabels:
    kusionstack.io/control: "true"
{{- end }}
{{- if not .everywhere }}
namespaceSelector:
  matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values: {{ concat $always .root.Values.global.excludedNamespaces | uniq | toJson }}
    {{- if hasKey . "injected" }}
    - key: podward.io/inject
      operator: {{ ternary "In" "NotIn" .injected }}
      values: [enabled{{ if not .injected }}, disabled{{ end }}]
    {{- end }}
{{- end }}
failurePolicy: {{ .failurePolicy }}
timeoutSeconds: {{ .timeout | default 2 }}
matchPolicy: Equivalent
sideEffects: {{ .sideEffects | default "None" }}
admissionReviewVersions: [v1]
{{- end }}
