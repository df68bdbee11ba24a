{{/*
What all webhook configurations have in common.

- namespaceSelector leaves out the system's namespaces and Podward's own: no outage of Podward may stop what is needed to
  repair it, or the cluster. It goes by the label that the API server itself puts on each namespace.
- objectSelector: only pods that opted in. On UPDATE it is matched against the old and the new object, so a pod that takes the
  label off is still seen doing so; on DELETE against the old one.
- timeoutSeconds: a decision takes well under a millisecond. 2 s is for a lost packet, not for thinking; every caller of the API
  server waits that long when a replica hangs.
- matchPolicy Equivalent: a pod reaches us as v1 whatever version it was written in.
- sideEffects None: decisions change nothing but the object, so dry runs are answered like others. Holding a pod has one (its wish
  is recorded), which a dry run hasn't: NoneOnDryRun.
- clientConfig has no caBundle: whatever makes the certificates fills it in, and an upgrade leaves it as it is.
*/}}

{{/*
Annotations of a configuration; takes the context of the chart that serves it. The authority is taken from its own certificate, not
from the webhook's: that way it is trusted before anything that it has signed is shown.
*/}}
{{- define "podward.webhookAnnotations" -}}
{{- if eq .Values.global.certificates.provider "cert-manager" }}
annotations:
  cert-manager.io/inject-ca-from: {{ .Release.Namespace }}/podward-ca
{{- end }}
{{- end }}

{{/*
One webhook but its name and what it alone has. Takes root, path, operation (or several, with commas), resource, failurePolicy, and,
where they aren't the usual, group, version, timeout, sideEffects, optedIn (false: objects are not selected by the label) and injected (true, false: only namespaces
that do or don't opt all their pods in).
*/}}
{{- define "podward.webhook" -}}
{{- $always := list "kube-system" "kube-public" "kube-node-lease" .root.Release.Namespace -}}
clientConfig:
  service:
    name: {{ .root.Chart.Name }}
    namespace: {{ .root.Release.Namespace }}
    port: 443
    path: {{ .path }}
rules:
  - apiGroups: [{{ .group | default "\"\"" }}]
    apiVersions: [{{ .version | default "v1" }}]
    operations: [{{ .operation }}]
    resources: [{{ .resource }}]
    scope: Namespaced
{{- if ne .optedIn false }}
objectSelector:
  matchLabels:
    kusionstack.io/control: "true"
{{- end }}
namespaceSelector:
  matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values: [{{ concat $always .root.Values.global.excludedNamespaces | uniq | join ", " }}]
    {{- if hasKey . "injected" }}
    - key: podward.io/inject
      operator: {{ ternary "In" "NotIn" .injected }}
      values: [enabled]
    {{- end }}
failurePolicy: {{ .failurePolicy }}
timeoutSeconds: {{ .timeout | default 2 }}
matchPolicy: Equivalent
sideEffects: {{ .sideEffects | default "None" }}
admissionReviewVersions: [v1]
{{- end }}
