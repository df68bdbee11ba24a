{{/* The certificate of a service with the provider cert-manager. */}}
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
    # Not 256, the size of the keys of the provider podward: after a switch of the provider, cert-manager would keep
    # those certificates until their renewal, and services whose certificates have different issuers would not trust
    # each other. With another size it issues all certificates again immediately.
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
