{{- define "qosm.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "qosm.agent" -}}{{ include "qosm.fullname" . }}-agent{{- end -}}
{{- define "qosm.pageMover" -}}{{ include "qosm.fullname" . }}-page-mover{{- end -}}
{{- define "qosm.controller" -}}{{ include "qosm.fullname" . }}-controller{{- end -}}

{{/* Labels that never change during a release's life: selectors are immutable. Called with (list . "agent"). */}}
{{- define "qosm.selectorLabels" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: {{ $root.Chart.Name }}
app.kubernetes.io/instance: {{ $root.Release.Name | quote }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{/* Labels of an object that belongs to no component. */}}
{{- define "qosm.labels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{ include "qosm.commonLabels" . }}
{{- end -}}

{{/* Labels of an object that belongs to a component. Called with (list . "agent"). */}}
{{- define "qosm.componentLabels" -}}
{{ include "qosm.selectorLabels" . }}
{{ include "qosm.commonLabels" (index . 0) }}
{{- end -}}

{{- define "qosm.commonLabels" -}}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "qosm.image" -}}
{{- $image := .Values.image -}}
{{- if $image.digest -}}
{{ $image.repository }}@{{ $image.digest }}
{{- else -}}
{{ $image.repository }}:{{ $image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{/* "true" while the page mover's DaemonSet moves pages, else empty. */}}
{{- define "qosm.movesPages" -}}
{{- $wish := .Values.agent.hostAccess.pageMigration -}}
{{- if or (eq $wish "always") (and (eq $wish "auto") .Values.policies.memoryLocality.enabled) -}}true{{- end -}}
{{- end -}}

{{/* "true" while there is a page mover: it moves pages, or puts processes into core scheduling groups. Else empty. */}}
{{- define "qosm.hasPageMover" -}}
{{- if or (include "qosm.movesPages" .) (eq .Values.agent.hostAccess.coreScheduling "always") -}}true{{- end -}}
{{- end -}}

{{/* "true" while the agent uses resctrl, else empty. */}}
{{- define "qosm.usesResctrl" -}}
{{- $wish := .Values.agent.hostAccess.resctrl -}}
{{- if or (eq $wish "always") (and (eq $wish "auto") .Values.policies.llcMba.enabled) -}}true{{- end -}}
{{- end -}}

{{/* "true" while the agent writes the node's own memory settings, else empty. */}}
{{- define "qosm.writesNodeMemory" -}}
{{- $wish := .Values.agent.hostAccess.nodeMemory -}}
{{- if or (eq $wish "always") (and (eq $wish "auto") .Values.policies.nodeMemory.enabled) -}}true{{- end -}}
{{- end -}}

{{/* The agent's capabilities, as a YAML list. Cgroup files belong to root: writing them needs no capability. */}}
{{- define "qosm.capabilities" -}}
{{- $names := list -}}
{{- if eq .Values.agent.hostAccess.shortPressureWindows "always" -}}
{{- $names = append $names "SYS_RESOURCE" -}}
{{- end -}}
{{- if eq .Values.agent.hostAccess.compileAsNobody "always" -}}
{{- $names = concat $names (list "SETGID" "SETUID") -}}
{{- end -}}
{{- if eq .Values.agent.hostAccess.endProcesses "always" -}}
{{- $names = append $names "KILL" -}}
{{- end -}}
{{- toYaml (concat $names .Values.agent.extraCapabilities | uniq | sortAlpha) -}}
{{- end -}}

{{/* The agent's seccomp type: RuntimeDefault, Localhost or Unconfined. */}}
{{- define "qosm.seccomp" -}}
{{- if ne .Values.agent.seccomp.type "auto" -}}
{{ .Values.agent.seccomp.type }}
{{- else -}}
RuntimeDefault
{{- end -}}
{{- end -}}

{{/* The page mover's seccomp type: runtimes' default profiles refuse move_pages(2). */}}
{{- define "qosm.pageMoverSeccomp" -}}
{{- if ne .Values.pageMover.seccomp.type "auto" -}}
{{ .Values.pageMover.seccomp.type }}
{{- else -}}
Localhost
{{- end -}}
{{- end -}}

{{/* "true" where the agent's container runs without AppArmor, else empty. */}}
{{- define "qosm.appArmorUnconfined" -}}
{{- $wish := .Values.agent.appArmor -}}
{{- $needed := eq .Values.agent.hostAccess.shortPressureWindows "always" -}}
{{- if or (eq $wish "Unconfined") (and (eq $wish "auto") $needed) -}}true{{- end -}}
{{- end -}}

{{- define "qosm.hasNodeIdentityPolicy" -}}
{{- $api := "admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy" -}}
{{- $wish := .Values.nodeIdentityPolicy -}}
{{- if or (eq $wish "always") (and (eq $wish "auto") (.Capabilities.APIVersions.Has $api)) -}}true{{- end -}}
{{- end -}}

{{/* "true" while the controller publishes resources and evicts pods, else empty. With `auto` also until the controller has withdrawn
     everything: at the first upgrade without colocation it still needs its rights, and its annotation on the nodes lists what to withdraw. */}}
{{- define "qosm.controlsColocation" -}}
{{- $wish := .Values.controller.colocation -}}
{{- if .Values.controller.enabled -}}
{{- if or (eq $wish "always") (and (eq $wish "auto") .Values.policies.colocation.enabled) -}}
true
{{- else if eq $wish "auto" -}}
{{- /* All templates share the context, which keeps the result: each lookup lists all Nodes. */ -}}
{{- if not (hasKey . "PublishedResourcesLeft") -}}
{{- $left := "" -}}
{{- range $node := (lookup "v1" "Node" "" "").items -}}
{{- if hasKey ($node.metadata.annotations | default dict) "qosm.io/published-resources" -}}{{- $left = "true" -}}{{- end -}}
{{- end -}}
{{- $_ := set . "PublishedResourcesLeft" $left -}}
{{- end -}}
{{- .PublishedResourcesLeft -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* What the controller does with NodeResourceTopologies: `publish`, `withdraw` at the first upgrade without them, or nothing. */}}
{{- define "qosm.nodeTopology" -}}
{{- if not .Values.controller.enabled -}}
{{- else if .Values.controller.nodeTopology -}}
publish
{{- else -}}
{{- $there := lookup "apps/v1" "Deployment" .Release.Namespace (include "qosm.controller" .) -}}
{{- range $container := dig "spec" "template" "spec" "containers" list $there -}}
{{- if has "--node-topology=publish" ($container.args | default list) -}}withdraw{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* "true" while a Lease determines which controller acts, else empty. */}}
{{- define "qosm.usesLease" -}}
{{- if and .Values.controller.enabled (or (gt (int .Values.controller.replicas) 1) (include "qosm.controlsColocation" .) (include "qosm.nodeTopology" .)) -}}true{{- end -}}
{{- end -}}

{{/* auto or off; YAML 1.1 reads a plain off as false. */}}
{{- define "qosm.nri" -}}
{{- eq (toString .Values.agent.nri) "auto" | ternary "auto" "off" -}}
{{- end -}}

{{- define "qosm.agentConfig" -}}
# The agent's own file; rendered from agentConfig of the chart's values.
{{ toYaml (omit .Values.agentConfig "confinement") }}
nri:
  mode: {{ include "qosm.nri" . | quote }}
{{- $confinement := .Values.agentConfig.confinement }}
confinement:
  mode: {{ $confinement.mode }}
  {{- /* The agent has to read what the chart mounts for modules, and to keep the capabilities that the chart grants. */}}
  {{- $paths := $confinement.readPaths }}
  {{- range .Values.agent.extraVolumeMounts }}
  {{- $paths = append $paths .mountPath }}
  {{- end }}
  {{- with $paths | uniq }}
  readPaths:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- $kept := concat $confinement.capabilities .Values.agent.extraCapabilities }}
  {{- if eq .Values.agent.hostAccess.shortPressureWindows "always" }}
  {{- $kept = append $kept "SYS_RESOURCE" }}
  {{- end }}
  {{- with $kept | uniq }}
  capabilities:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end -}}
