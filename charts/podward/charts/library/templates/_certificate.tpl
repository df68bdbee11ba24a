{{/* The certificate of a service, when cert-manager makes it. */}}
{{- define "podward.certificate" -}}
{{- with .Values.global.certificates }}
{{- if eq .provider "cert-manager" }}
{{- $host := printf "%s.%s" $.Chart.Name $.Release.Namespace }}
apiVersion: cert-manager.io/v1
kind: Certificate
metadata:
  name: {{ include "podward.tlsSecret" $ }}
  namespace: {{ $.Release.Namespace }}
  labels:
    {{- include "podward.labels" $ | nindent 4 }}
spec:
  secretName: {{ include "podward.tlsSecret" $ }}
  duration: {{ int .lifetimeSeconds }}s
  renewBefore: {{ div (int .lifetimeSeconds) 3 }}s
  privateKey:
    algorithm: ECDSA
    # Not 256, as Podward's own are: cert-manager would keep those until their time has come, and sign one service's before another's,
    # which then don't trust each other. As it is, it makes all of them anew as soon as it is asked to.
    size: 384
    rotationPolicy: Always
  usages: [digital signature, server auth]
  dnsNames:
    - {{ $.Chart.Name }}
    - {{ $host }}
    - {{ $host }}.svc
    - {{ $host }}.svc.cluster.local
  issuerRef:
    name: podward-ca
    kind: Issuer
{{- end }}
{{- end }}
{{- end }}
