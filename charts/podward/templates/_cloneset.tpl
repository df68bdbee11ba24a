{{/*
The definition of CloneSets in the cluster, as YAML: whether it exists, whether this release has installed it, and
whether Helm keeps it when a release does not contain it any more. OpenKruise has the same definition, and may take over
that of Podward. Without a cluster, as for `helm template`, nothing exists.
*/}}
{{- define "podward.cloneSetDefinition" -}}
{{- $found := lookup "apiextensions.k8s.io/v1" "CustomResourceDefinition" "" "clonesets.apps.kruise.io" }}
{{- $annotations := dig "metadata" "annotations" dict $found }}
{{- $isOfRelease := eq (get $annotations "meta.helm.sh/release-name") .Release.Name }}
exists: {{ $found | empty | not }}
ours: {{ and $isOfRelease (eq (get $annotations "meta.helm.sh/release-namespace") .Release.Namespace) }}
kept: {{ eq (get $annotations "helm.sh/resource-policy") "keep" }}
{{- end }}

{{/* Not empty if the release contains the definition of CloneSets. It never takes over that of OpenKruise. */}}
{{- define "podward.definesCloneSets" -}}
{{- if and .Values.crds.install (ne (toString .Values.cloneset.enabled) "false") }}
{{- $definition := include "podward.cloneSetDefinition" . | fromYaml }}
{{- if or (not $definition.exists) $definition.ours }}true{{ end }}
{{- end }}
{{- end }}
