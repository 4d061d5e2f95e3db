{{/* Takes over the values of ingress-nginx by the table files/ingress-nginx.yaml. Arguments: root, result of yumen.settings. */}}
{{- define "yumen.adopt" -}}
{{- $values := .result.values -}}
{{- $adopting := gt (len .root.Values.controller) 0 -}}
{{- $_ := set .result "isIngressOff" (eq (toString $values.ingress.enabled) "false") -}}
{{- if eq (toString $values.ingress.enabled) "auto" -}}
{{- $_ := set $values.ingress "enabled" $adopting -}}
{{- end -}}
{{- $_ := set .result "adopting" $adopting -}}
{{- $_ := set $values "adopted" (dict) -}}
{{- $table := .root.Files.Get "files/ingress-nginx.yaml" | fromYaml -}}
{{- $_ := set .result "table" $table -}}
{{- if $adopting -}}
{{- if eq (int $values.ports.status) 9091 -}}{{- $_ := set $values.ports "status" 10254 -}}{{- end -}}
{{- $known := concat (keys $table.take) (keys $table.report) (keys $table.refuse) -}}
{{- $theirs := dict "controller" .root.Values.controller "global" .root.Values.global "dhParam" (default "" .root.Values.dhParam) -}}
{{- range $name, $value := $theirs -}}
{{- include "yumen.walk" (dict "path" $name "value" $value "base" "" "result" $.result "table" $table "known" $known) -}}
{{- end -}}
{{- if .root.Values.rbac.scope -}}
{{- $_ := set .result.refused "rbac.scope" "objects of all namespaces are listed, which needs a ClusterRole; controller.scope alone chooses the namespace of Ingresses" -}}
{{- end -}}
{{- include "yumen.adoptPod" .result -}}
{{- include "yumen.adoptIngress" .result -}}
{{- end -}}
{{- range $key, $value := $values.ingress.config -}}
{{- $reason := get $table.configRefuse $key -}}
{{- if and $reason (not (has (toString $value) (list "" "false"))) -}}
{{- $_ := set $.result.refused (printf "controller.config.%s" $key) $reason -}}
{{- end -}}
{{- end -}}
{{- include "yumen.configKeys" .result -}}
{{- $_ := unset .result "table" -}}
{{- $_ := unset $values "controller" -}}
{{- end -}}

{{/* One node of the tree of values. `base` is the longest listed path above it. */}}
{{- define "yumen.walk" -}}
{{- $base := ternary .path .base (has .path .known) -}}
{{- $inner := false -}}
{{- if and (kindIs "map" .value) .value -}}
{{- $prefix := printf "%s." .path -}}
{{- range .known -}}{{- if hasPrefix $prefix . -}}{{- $inner = true -}}{{- end -}}{{- end -}}
{{- end -}}
{{- if $inner -}}
{{- range $name, $value := .value -}}
{{- include "yumen.walk" (dict "path" (printf "%s.%s" $.path $name) "value" $value "base" $base "result" $.result "table" $.table "known" $.known) -}}
{{- end -}}
{{- else if not (or (kindIs "invalid" .value) (and (kindIs "string" .value) (eq .value "")) (and (or (kindIs "map" .value) (kindIs "slice" .value)) (not .value))) -}}
{{- $rest := regexReplaceAll "\"[^\"]*\":(\"\"|null|false|0|\\{\\}|\\[\\])" (toJson .value) "" -}}
{{- $isOff := or (has (toString .value) (list "false" "0")) (regexMatch "^[{},]*$" $rest) -}}
{{- if hasKey .table.take $base -}}
{{- include "yumen.put" (dict "into" .result.values "path" (printf "%s%s" (get .table.take $base) (trimPrefix $base .path)) "value" .value) -}}
{{- else if hasKey .table.refuse $base -}}
{{- if not $isOff -}}{{- $_ := set .result.refused $base (get .table.refuse $base) -}}{{- end -}}
{{- else if hasKey .table.report $base -}}
{{- if not $isOff -}}{{- $_ := set .result.report $base (get .table.report $base) -}}{{- end -}}
{{- else -}}
{{- $_ := set .result.report .path "unknown to this chart and to version 4.15 of the ingress-nginx chart" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* What needs more than another name: the pod. */}}
{{- define "yumen.adoptPod" -}}
{{- $values := .values -}}
{{- $adopted := $values.adopted -}}
{{- range $name := list "livenessProbe" "readinessProbe" "startupProbe" -}}
{{- with get $adopted $name -}}
{{- include "yumen.put" (dict "into" $values "path" $name "value" (omit . "httpGet" "exec" "tcpSocket" "grpc")) -}}
{{- end -}}
{{- end -}}
{{- with $adopted.sysctls -}}
{{- $sysctls := list -}}
{{- range $name, $value := . -}}{{- $sysctls = append $sysctls (dict "name" $name "value" (toString $value)) -}}{{- end -}}
{{- $_ := set $values.podSecurityContext "sysctls" $sysctls -}}
{{- end -}}
{{- range $hook, $action := $adopted.lifecycle -}}
{{- if and (kindIs "map" $action) (hasKey $action "sleep") -}}
{{- $_ := set $values.lifecycle $hook $action -}}
{{- else if $action -}}
{{- $_ := set $.report (printf "controller.lifecycle.%s" $hook) "the image has no program for a hook, and none is needed: kubernetes.linger_s and timeouts.drain_ms end a pod in order" -}}
{{- end -}}
{{- end -}}
{{- if hasKey $adopted "metrics" -}}
{{- $has := eq (include "yumen.isTrue" $adopted.metrics) "true" -}}
{{- $_ := set $values.metrics "ingressNginx" $has -}}
{{- $_ := set $values.metrics.service "enabled" (and $has (dig "controller" "metrics" "service" "enabled" true $values)) -}}
{{- if not $has -}}
{{- $_ := set $values.metrics.serviceMonitor "enabled" false -}}
{{- $_ := set $values.metrics.prometheusRule "enabled" false -}}
{{- end -}}
{{- end -}}
{{- if and $values.podDisruptionBudget.minAvailable $values.podDisruptionBudget.maxUnavailable -}}
{{- $_ := set $values.podDisruptionBudget "minAvailable" "" -}}
{{- end -}}
{{- range $name := list "affinity" "topologySpreadConstraints" -}}
{{- if contains "\"ingress-nginx\"" (get $values $name | toJson) -}}
{{- $_ := set $.report (printf "controller.%s" $name) "its selector names ingress-nginx and selects no pod of this chart: the label app.kubernetes.io/name is yumen" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* What needs more than another name: Ingresses. */}}
{{- define "yumen.adoptIngress" -}}
{{- $flags := .values.ingress.flags -}}
{{- range $flag, $path := dict "http-port" "ports.http" "https-port" "ports.https" "healthz-port" "ports.status" -}}
{{- if hasKey $flags $flag -}}
{{- include "yumen.put" (dict "into" $.values "path" $path "value" (get $flags $flag | toString | atoi)) -}}
{{- $_ := unset $flags $flag -}}
{{- end -}}
{{- end -}}
{{- with .values.adopted.scope -}}
{{- if .enabled -}}
{{- $_ := set $flags "watch-namespace" (default "$(POD_NAMESPACE)" .namespace) -}}
{{- else if .namespaceSelector -}}
{{- $_ := set $flags "watch-namespace-selector" .namespaceSelector -}}
{{- end -}}
{{- end -}}
{{- with .values.adopted.publishService -}}
{{- if eq (toString .enabled) "false" -}}
{{- $_ := set $.values.ingress "publishService" false -}}
{{- else if .pathOverride -}}
{{- $_ := set $flags "publish-service" .pathOverride -}}
{{- end -}}
{{- end -}}
{{- if hasKey .values.adopted "allowSnippets" -}}
{{- $_ := set .values.ingress.config "allow-snippet-annotations" (toString .values.adopted.allowSnippets) -}}
{{- end -}}
{{- end -}}
