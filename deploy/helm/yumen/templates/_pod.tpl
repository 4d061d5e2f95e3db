{{/* Whether and how ports below 1024 are bound: sysctl, capability, root or none. Argument: result of yumen.settings. */}}
{{- define "yumen.lowPorts" -}}
{{- $values := .values -}}
{{- $isLow := or (and .ingress (or (lt (int $values.ports.http) 1024) (lt (int $values.ports.https) 1024))) (ne .mode "service") -}}
{{- if not $isLow -}}none
{{- else if eq $values.lowPorts "auto" -}}{{ ternary "root" "sysctl" $values.hostNetwork }}
{{- else -}}{{ $values.lowPorts }}
{{- end -}}
{{- end -}}

{{- define "yumen.podSecurityContext" -}}
{{- $context := .values.podSecurityContext -}}
{{- $how := include "yumen.lowPorts" . -}}
{{- if eq $how "sysctl" -}}
{{- $sysctl := dict "name" "net.ipv4.ip_unprivileged_port_start" "value" "0" -}}
{{- $_ := set $context "sysctls" (append (default (list) $context.sysctls) $sysctl) -}}
{{- else if eq $how "root" -}}
{{- $context = mergeOverwrite $context (dict "runAsNonRoot" false "runAsUser" 0 "runAsGroup" 0) -}}
{{- end -}}
{{- toYaml $context -}}
{{- end -}}

{{- define "yumen.securityContext" -}}
{{- $context := .values.securityContext -}}
{{- if has (include "yumen.lowPorts" .) (list "capability" "root") -}}
{{- include "yumen.put" (dict "into" $context "path" "capabilities.add" "value" (list "NET_BIND_SERVICE")) -}}
{{- end -}}
{{- toYaml $context -}}
{{- end -}}

{{/* A probe of the status listener. Arguments: timings, path. */}}
{{- define "yumen.probe" -}}
{{- toYaml (merge (dict "httpGet" (dict "path" .path "port" "status")) .timings) -}}
{{- end -}}

{{/* Ports of tcp and udp as a list of {name, port, protocol}. */}}
{{- define "yumen.streamPorts" -}}
{{- $ports := list -}}
{{- range $protocol := list "tcp" "udp" -}}
{{- range $port, $_ := get $.Values $protocol -}}
{{- $name := printf "%s%s%s-%s" $.Values.portNamePrefix (ternary "-" "" (ne $.Values.portNamePrefix "")) $port $protocol -}}
{{- $ports = append $ports (dict "name" $name "port" (atoi $port) "protocol" (upper $protocol)) -}}
{{- end -}}
{{- end -}}
{{- dict "ports" $ports | toJson -}}
{{- end -}}

{{- define "yumen.containerPorts" -}}
{{- $values := .y.values -}}
{{- if .y.ingress }}
{{- range $name, $host := $values.hostPort.ports }}
- name: {{ $name }}
  containerPort: {{ get $values.ports $name }}
  {{- if $values.hostPort.enabled }}
  hostPort: {{ $host }}
  {{- end }}
  protocol: TCP
{{- end }}
{{- range (include "yumen.streamPorts" .root | fromJson).ports }}
- name: {{ .name }}
  containerPort: {{ .port }}
  {{- if $values.hostPort.enabled }}
  hostPort: {{ .port }}
  {{- end }}
  protocol: {{ .protocol }}
{{- end }}
{{- end }}
- name: status
  containerPort: {{ $values.ports.status }}
  protocol: TCP
{{- if $values.admin.expose }}
- name: admin
  containerPort: {{ $values.admin.port }}
  protocol: TCP
{{- end }}
{{- if $values.admissionWebhook.enabled }}
- name: webhook
  containerPort: {{ $values.ports.webhook }}
  protocol: TCP
{{- end }}
{{- end -}}

{{- define "yumen.environment" -}}
- name: POD_NAME
  valueFrom: { fieldRef: { fieldPath: metadata.name } }
- name: POD_NAMESPACE
  valueFrom: { fieldRef: { fieldPath: metadata.namespace } }
{{- if .y.values.hostNetwork }}
- name: HOST_IP
  valueFrom: { fieldRef: { fieldPath: status.hostIP } }
{{- end }}
{{- if .y.values.admin.expose }}
- name: YUMEN_ADMIN_KEY
  valueFrom: { secretKeyRef: { name: {{ include "yumen.adminSecret" .root }}, key: key } }
{{- end }}
{{- with .y.values.extraEnv }}
{{ tpl (toYaml .) $.root }}
{{- end }}
{{- end -}}

{{- define "yumen.adminSecret" -}}
{{- default (printf "%s-admin" (include "yumen.fullname" .)) .Values.admin.existingSecret -}}
{{- end -}}

{{- define "yumen.container" -}}
{{- $values := .y.values -}}
name: yumen
image: {{ include "yumen.image" (dict "image" $values.image "version" .root.Chart.AppVersion) }}
imagePullPolicy: {{ $values.image.pullPolicy }}
args:
  - run
  - --config
  - /etc/yumen/yumen.yaml
  {{- with $values.extraArgs }}
  {{- tpl (toYaml .) $.root | nindent 2 }}
  {{- end }}
env:
  {{- include "yumen.environment" . | nindent 2 }}
{{- with $values.extraEnvFrom }}
envFrom:
  {{- tpl (toYaml .) $.root | nindent 2 }}
{{- end }}
ports:
  {{- include "yumen.containerPorts" . | trim | nindent 2 }}
{{- with $values.startupProbe }}
startupProbe:
  {{- include "yumen.probe" (dict "timings" . "path" "/status") | nindent 2 }}
{{- end }}
readinessProbe:
  {{- include "yumen.probe" (dict "timings" $values.readinessProbe "path" "/status/ready") | nindent 2 }}
livenessProbe:
  {{- include "yumen.probe" (dict "timings" $values.livenessProbe "path" "/status") | nindent 2 }}
{{- with $values.lifecycle }}
lifecycle:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.resources }}
resources:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.resizePolicy }}
resizePolicy:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  {{- include "yumen.securityContext" .y | nindent 2 }}
volumeMounts:
  - name: config
    mountPath: /etc/yumen
    readOnly: true
  - name: data
    mountPath: /var/lib/yumen
  {{- if $values.admin.expose }}
  - name: admin-tls
    mountPath: /etc/yumen-admin
    readOnly: true
  {{- end }}
  {{- with $values.extraVolumeMounts }}
  {{- tpl (toYaml .) $.root | nindent 2 }}
  {{- end }}
{{- end -}}

{{/* Spread over nodes and zones; entries without a selector select the pods of this release. */}}
{{- define "yumen.spread" -}}
{{- $selector := dict "matchLabels" (include "yumen.selectorLabels" .root | fromYaml) -}}
{{- $constraints := .y.values.topologySpreadConstraints -}}
{{- if and (not $constraints) (eq .y.values.kind "Deployment") -}}
{{- range list "kubernetes.io/hostname" "topology.kubernetes.io/zone" -}}
{{- $constraints = append $constraints (dict "topologyKey" . "maxSkew" 1 "whenUnsatisfiable" "ScheduleAnyway") -}}
{{- end -}}
{{- end -}}
{{- $result := list -}}
{{- range $constraints -}}
{{- $result = append $result (ternary . (merge (dict "labelSelector" $selector) .) (hasKey . "labelSelector")) -}}
{{- end -}}
{{- with $result -}}{{ tpl (toYaml .) $.root }}{{- end -}}
{{- end -}}

{{/* The template of pods. Arguments: root, y (the settings). */}}
{{- define "yumen.pod" -}}
{{- $values := .y.values -}}
metadata:
  labels:
    {{- include "yumen.selectorLabels" .root | nindent 4 }}
    {{- if .y.adopting }}
    app.kubernetes.io/component: controller
    {{- end }}
    {{- with merge (dict) $values.podLabels .root.Values.commonLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  annotations:
    checksum/config: {{ .y.node | toJson | sha256sum }}
    {{- with $values.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  serviceAccountName: {{ include "yumen.serviceAccountName" .root }}
  automountServiceAccountToken: {{ $values.serviceAccount.automountServiceAccountToken }}
  terminationGracePeriodSeconds: {{ $values.terminationGracePeriodSeconds }}
  {{- with $values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- if $values.hostNetwork }}
  hostNetwork: true
  {{- end }}
  {{- with default (ternary "ClusterFirstWithHostNet" "" $values.hostNetwork) $values.dnsPolicy }}
  dnsPolicy: {{ . }}
  {{- end }}
  {{- with $values.hostname }}
  hostname: {{ . }}
  {{- end }}
  {{- if $values.shareProcessNamespace }}
  shareProcessNamespace: true
  {{- end }}
  {{- range $name := list "dnsConfig" "hostAliases" "nodeSelector" "tolerations" }}
  {{- with get $values $name }}
  {{ $name }}:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- end }}
  {{- range $name := list "runtimeClassName" "schedulerName" "priorityClassName" }}
  {{- with get $values $name }}
  {{ $name }}: {{ . }}
  {{- end }}
  {{- end }}
  {{- with $values.affinity }}
  affinity:
    {{- tpl (toYaml .) $.root | nindent 4 }}
  {{- end }}
  {{- with include "yumen.spread" . }}
  topologySpreadConstraints:
    {{- . | nindent 4 }}
  {{- end }}
  securityContext:
    {{- include "yumen.podSecurityContext" .y | nindent 4 }}
  {{- with $values.extraInitContainers }}
  initContainers:
    {{- tpl (toYaml .) $.root | nindent 4 }}
  {{- end }}
  containers:
    - {{ include "yumen.container" . | nindent 6 | trim }}
    {{- with $values.extraContainers }}
    {{- tpl (toYaml .) $.root | nindent 4 }}
    {{- end }}
  volumes:
    - name: config
      configMap: { name: {{ include "yumen.fullname" .root }} }
    - name: data
      {{- toYaml $values.dataVolume | nindent 6 }}
    {{- if $values.admin.expose }}
    - name: admin-tls
      secret: { secretName: {{ required "admin.tlsSecret: an exposed Admin API needs a certificate; name a Secret of type kubernetes.io/tls" $values.admin.tlsSecret }} }
    {{- end }}
    {{- with $values.extraVolumes }}
    {{- tpl (toYaml .) $.root | nindent 4 }}
    {{- end }}
{{- end -}}
