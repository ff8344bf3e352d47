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
{{- define "qosm.controller" -}}{{ include "qosm.fullname" . }}-controller{{- end -}}

{{/* What never changes in the life of a release: selectors are immutable. Called with (list . "agent"). */}}
{{- define "qosm.selectorLabels" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: {{ $root.Chart.Name }}
app.kubernetes.io/instance: {{ $root.Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{/* Labels of an object of no component. */}}
{{- define "qosm.labels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{ include "qosm.commonLabels" . }}
{{- end -}}

{{/* Labels of an object of a component. Called with (list . "agent"). */}}
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

{{/* "true" while the agent can move pages, else empty. */}}
{{- define "qosm.movesPages" -}}
{{- $wish := .Values.agent.hostAccess.pageMigration -}}
{{- if or (eq $wish "always") (and (eq $wish "auto") .Values.policies.memoryLocality.enabled) -}}true{{- end -}}
{{- end -}}

{{/* "true" while the agent uses resctrl, else empty. */}}
{{- define "qosm.usesResctrl" -}}
{{- $wish := .Values.agent.hostAccess.resctrl -}}
{{- if or (eq $wish "always") (and (eq $wish "auto") .Values.policies.llcMba.enabled) -}}true{{- end -}}
{{- end -}}

{{/* The capabilities that the granted controls need, as a YAML list. Cgroup files belong to root: writing them takes none. */}}
{{- define "qosm.capabilities" -}}
{{- $names := list -}}
{{- if include "qosm.movesPages" . -}}
{{- $names = concat $names (list "DAC_READ_SEARCH" "SYS_NICE" "SYS_PTRACE") -}}
{{- end -}}
{{- if eq .Values.agent.hostAccess.shortPressureWindows "always" -}}
{{- $names = append $names "SYS_RESOURCE" -}}
{{- end -}}
{{- if eq .Values.agent.hostAccess.compileAsNobody "always" -}}
{{- $names = concat $names (list "SETGID" "SETUID") -}}
{{- end -}}
{{- toYaml (concat $names .Values.agent.extraCapabilities | uniq | sortAlpha) -}}
{{- end -}}

{{/* RuntimeDefault, Localhost or Unconfined. */}}
{{- define "qosm.seccomp" -}}
{{- if ne .Values.agent.seccomp.type "auto" -}}
{{ .Values.agent.seccomp.type }}
{{- else if include "qosm.movesPages" . -}}
Localhost
{{- else -}}
RuntimeDefault
{{- end -}}
{{- end -}}

{{/* "true" where the agent's container runs without AppArmor, else empty. */}}
{{- define "qosm.appArmorUnconfined" -}}
{{- $wish := .Values.agent.appArmor -}}
{{- $needed := or (include "qosm.movesPages" .) (eq .Values.agent.hostAccess.shortPressureWindows "always") -}}
{{- if or (eq $wish "Unconfined") (and (eq $wish "auto") $needed) -}}true{{- end -}}
{{- end -}}

{{- define "qosm.hasNodeIdentityPolicy" -}}
{{- $api := "admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy" -}}
{{- $wish := .Values.nodeIdentityPolicy -}}
{{- if or (eq $wish "always") (and (eq $wish "auto") (.Capabilities.APIVersions.Has $api)) -}}true{{- end -}}
{{- end -}}

{{- define "qosm.agentConfig" -}}
# The agent's own file; rendered from agentConfig of the chart's values.
{{ toYaml .Values.agentConfig }}
{{- end -}}
