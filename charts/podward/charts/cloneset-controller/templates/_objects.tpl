{{/*
All objects of the cloneset-controller. Takes the context of this chart, and in it

  mode              auto or always
  definesCloneSets  not empty if the release contains the definition of CloneSets

The chart podward renders them if cloneset.enabled says so. The condition of a subchart would have to be a boolean, and
its own templates would not see the value.
*/}}
{{- define "cloneset-controller.objects" -}}
# The account of the cloneset-controller and its rights. Who may create CloneSets gets pods by it, as by any workload.
---
{{ include "podward.serviceAccount" . }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: podward-{{ .Chart.Name }}
  labels:
    {{- include "podward.labels" . | nindent 4 }}
  {{- if .definesCloneSets }}
  # The next upgrade reads it: templates/checks.yaml.
  annotations:
    podward.io/defines-clonesets: {{ .Release.Name }}
  {{- end }}
rules:
  - apiGroups: [apps.kruise.io]
    resources: [clonesets]
    # patch: names of pods that are gone are removed from scaleStrategy.podsToDelete.
    verbs: [get, list, watch, patch]
  - apiGroups: [apps.kruise.io]
    resources: [clonesets/status]
    verbs: [patch]
  # Some clusters require it of whoever writes owner references that block the deletion of the owner.
  - apiGroups: [apps.kruise.io]
    resources: [clonesets/finalizers]
    verbs: [update]
  # Their pods. patch: labels and finalizers of the lifecycle, and images in place. The validating webhook reviews the
  # deletes.
  - apiGroups: [""]
    resources: [pods]
    verbs: [list, watch, create, patch, delete]
  # The condition that takes a pod out of service while it is updated in place.
  - apiGroups: [""]
    resources: [pods/status]
    verbs: [patch]
  # Requests and limits in place.
  - apiGroups: [""]
    resources: [pods/resize]
    verbs: [patch]
  # The revisions of the template of a set.
  - apiGroups: [apps]
    resources: [controllerrevisions]
    verbs: [list, watch, create, patch, delete]
  # The volumes of pods.
  - apiGroups: [""]
    resources: [persistentvolumeclaims]
    verbs: [list, watch, create, patch, delete]
  # A pod that ends can become the owner of its volumes.
  - apiGroups: [""]
    resources: [pods/finalizers]
    verbs: [update]
  {{- if eq .mode "auto" }}
  # Whether OpenKruise is installed. Only the metadata is read. RBAC applies the name to list and watch requests that
  # select it.
  - apiGroups: [apiextensions.k8s.io]
    resources: [customresourcedefinitions]
    resourceNames: [sidecarsets.apps.kruise.io]
    verbs: [list, watch]
  {{- end }}
  # Events: written once and never changed.
  - apiGroups: [events.k8s.io]
    resources: [events]
    verbs: [create]
---
# Leader election: the lease in this namespace. Replicas that do not lead watch the lease, which requires list and
# watch. RBAC cannot restrict create by name.
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: {{ .Chart.Name }}-lease
  namespace: {{ .Release.Namespace }}
  labels:
    {{- include "podward.labels" . | nindent 4 }}
rules:
  - apiGroups: [coordination.k8s.io]
    resources: [leases]
    resourceNames: [{{ .Chart.Name }}]
    verbs: [get, list, watch, patch]
  - apiGroups: [coordination.k8s.io]
    resources: [leases]
    verbs: [create]
---
{{ include "podward.binding" (dict "root" . "role" (printf "%s-lease" .Chart.Name)) }}
---
{{- /* Each list of pods would leave memory behind. */}}
{{- $arenas := dict "name" "MALLOC_ARENA_MAX" "value" "1" }}
{{- $trim := dict "name" "MALLOC_TRIM_THRESHOLD_" "value" "131072" }}
{{ include "podward.workload" (dict "root" . "certificate" false "env" (list $arenas $trim)) }}
{{- end }}
