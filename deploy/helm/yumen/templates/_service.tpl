{{/* Members of the specification of a Service that are passed on. Arguments: service, default (a Service whose members count where
     this one has none). */}}
{{- define "yumen.serviceSpec" -}}
{{- $service := .service -}}
{{- range $name := list "type" "clusterIP" "clusterIPs" "externalIPs" "loadBalancerIP" "loadBalancerSourceRanges" "loadBalancerClass" "externalTrafficPolicy" "sessionAffinity" "healthCheckNodePort" "trafficDistribution" "ipFamilyPolicy" "ipFamilies" }}
{{- with get $service $name }}
{{ $name }}: {{ toJson . }}
{{- end }}
{{- end }}
{{- if hasKey $service "allocateLoadBalancerNodePorts" }}
allocateLoadBalancerNodePorts: {{ $service.allocateLoadBalancerNodePorts }}
{{- end }}
{{- end -}}

{{/* Ports of a Service of traffic. Arguments: root, y, service. */}}
{{- define "yumen.servicePorts" -}}
{{- $service := .service -}}
{{- $nodePorts := default (dict) $service.nodePorts -}}
{{- range $name := list "http" "https" }}
{{- if get $.y.values.service (printf "enable%s" (title $name)) }}
- name: {{ $name }}
  port: {{ get $service.ports $name }}
  {{- $fallback := ternary (printf "%s" $name) (get $service.ports $name) $.y.ingress }}
  targetPort: {{ get (default (dict) $service.targetPorts) $name | default $fallback }}
  protocol: TCP
  {{- if $service.appProtocol }}
  appProtocol: {{ $name }}
  {{- end }}
  {{- with get $nodePorts $name }}
  nodePort: {{ . }}
  {{- end }}
{{- end }}
{{- end }}
{{- range (include "yumen.streamPorts" .root | fromJson).ports }}
- name: {{ .name }}
  port: {{ .port }}
  targetPort: {{ ternary .name .port $.y.ingress }}
  protocol: {{ .protocol }}
  {{- with get (default (dict) (get $nodePorts (lower .protocol))) (toString .port) }}
  nodePort: {{ . }}
  {{- end }}
{{- end }}
{{- end -}}
