{{/* The node file: settings of this chart, then those of ingress-nginx's ConfigMap, then the value config. Completes the result of
     yumen.settings by `node` and `grace`. Arguments: root, result. */}}
{{- define "yumen.nodeFile" -}}
{{- $values := .result.values -}}
{{- $selector := printf "app.kubernetes.io/name=%s,app.kubernetes.io/instance=%s" (include "yumen.name" .root) .root.Release.Name -}}
{{- $published := $values.gateway.publishAddresses -}}
{{- if and (not $published) $values.hostNetwork -}}{{- $published = list "${{HOST_IP}}" -}}{{- end -}}
{{- $kubernetes := dict "controller_name" $values.gateway.controllerName "gateway_mode" .result.mode "service_type" $values.gateway.serviceType "ports" $values.gateway.ports "publish_addresses" $published "pod_selector" $selector "linger_s" 15 "take_over" $values.takeOver -}}
{{- if .result.ingress -}}
{{- include "yumen.ingressSettings" (dict "root" .root "result" .result "kubernetes" $kubernetes) -}}
{{- else if .result.isIngressOff -}}
{{- $_ := set $kubernetes "ingress" (dict "enabled" false) -}}
{{- end -}}
{{- if $values.admissionWebhook.enabled -}}
{{- $name := printf "%s-admission" (include "yumen.fullname" .root) -}}
{{- $_ := set $kubernetes "webhook" (dict "enabled" true "listen" (printf ":%d" (int $values.ports.webhook)) "service" $name "secret" $name "configuration" (ternary "" $name (ne $values.admissionWebhook.caBundle ""))) -}}
{{- end -}}
{{- $node := dict "listen" (list) "status" (dict "listen" (printf ":%d" (int $values.ports.status))) "store" (dict "kind" "kubernetes" "data_dir" "/var/lib/yumen") "kubernetes" $kubernetes "timeouts" (dict "drain_ms" 30000) -}}
{{- if $values.admin.expose -}}
{{- $key := dict "name" "helm" "key" "${{YUMEN_ADMIN_KEY}}" "role" "admin" -}}
{{- $tls := dict "certificate" "/etc/yumen-admin/tls.crt" "key" "/etc/yumen-admin/tls.key" -}}
{{- $_ := set $node "admin" (dict "listen" (printf ":%d" (int $values.admin.port)) "allow" $values.admin.allow "keys" (list $key) "tls" $tls) -}}
{{- end -}}
{{- $node = mergeOverwrite $node .result.node $values.config -}}
{{- include "yumen.gracePeriod" (dict "values" $values "node" $node) -}}
{{- $_ := set .result "node" $node -}}
{{- end -}}

{{/* Brings the grace period of pods in step with the time that the gateway needs to end. Arguments: values, node. */}}
{{- define "yumen.gracePeriod" -}}
{{- $linger := int .node.kubernetes.linger_s -}}
{{- $needed := add $linger (div (int64 .node.timeouts.drain_ms) 1000) 15 -}}
{{- $grace := int .values.terminationGracePeriodSeconds -}}
{{- if not $grace -}}
{{- $_ := set .values "terminationGracePeriodSeconds" $needed -}}
{{- else if lt $grace (int $needed) -}}
{{- if or (dig "kubernetes" "linger_s" "" .values.config) (dig "timeouts" "drain_ms" "" .values.config) -}}
{{- fail (printf "terminationGracePeriodSeconds is %d, but config.kubernetes.linger_s, config.timeouts.drain_ms and a margin of 15 s need %d: raise it, or shorten these" $grace $needed) -}}
{{- end -}}
{{- if lt $grace 5 -}}{{- fail "terminationGracePeriodSeconds must be at least 5: the gateway finishes its requests" -}}{{- end -}}
{{- $linger = min $linger (div $grace 3) | int -}}
{{- $_ := set .node.kubernetes "linger_s" $linger -}}
{{- $_ := set .node.timeouts "drain_ms" (mul 1000 (max 1 (sub (sub $grace $linger) (min 15 (div $grace 3))))) -}}
{{- end -}}
{{- end -}}

{{/* Settings of the node from keys of ingress-nginx's ConfigMap. Argument: result of yumen.settings. */}}
{{- define "yumen.configKeys" -}}
{{- $config := .values.ingress.config -}}
{{- $node := .node -}}
{{- if .adopting -}}
{{- include "yumen.put" (dict "into" $node "path" "logs.access" "value" (dict "enabled" true "format" "combined")) -}}
{{- end -}}
{{- range $key, $path := .table.configKeys -}}
{{- if hasKey $config $key -}}
{{- $text := toString (get $config $key) -}}
{{- $value := "" -}}
{{- if hasSuffix "_ms" $path -}}{{- $value = include "yumen.milliseconds" $text | int64 -}}
{{- else if eq $key "worker-processes" -}}{{- $value = ternary 0 (atoi $text) (eq $text "auto") -}}
{{- else if eq $key "disable-access-log" -}}{{- $value = ne (lower $text) "true" -}}
{{- else if eq $key "error-log-level" -}}{{- $value = get (dict "debug" "debug" "info" "info" "notice" "info" "warn" "warn") $text | default "error" -}}
{{- else if eq $key "ssl-protocols" -}}{{- $value = ternary "1.3" "1.2" (eq (trim $text) "TLSv1.3") -}}
{{- else if eq $key "ssl-ciphers" -}}{{- $value = regexFindAll "ECDHE-(?:ECDSA|RSA)-(?:AES128-GCM-SHA256|AES256-GCM-SHA384|CHACHA20-POLY1305)|TLS_[A-Z0-9_]+" $text -1 -}}
{{- else if has $text (list "true" "false") -}}{{- $value = eq $text "true" -}}
{{- else if regexMatch "^[0-9]+$" $text -}}{{- $value = int64 $text -}}
{{- end -}}
{{- if not (has $path (list "trusted_addresses" "real_ip.source")) -}}
{{- if or (and (or (hasSuffix "_ms" $path) (eq $path "limits.connections_per_worker")) (not $value)) (and (kindIs "string" $value) (not $value)) (and (kindIs "slice" $value) (not $value)) -}}
{{- $_ := set $.report (printf "controller.config.%s" $key) (printf "%q has no counterpart in %s" $text $path) -}}
{{- else -}}
{{- include "yumen.put" (dict "into" $node "path" $path "value" $value) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if regexMatch "TLSv1( |$|\\.1)" (toString (get $config "ssl-protocols")) -}}
{{- $_ := set .report "controller.config.ssl-protocols" "TLS 1.0 and 1.1 are not offered (RFC 8996)" -}}
{{- end -}}
{{- include "yumen.forwardedHeaders" (dict "config" $config "node" $node) -}}
{{- end -}}

{{/* Trust in the addresses and headers of proxies. Arguments: config, node. */}}
{{- define "yumen.forwardedHeaders" -}}
{{- $forwarded := include "yumen.isTrue" (get .config "use-forwarded-headers") -}}
{{- if or $forwarded (include "yumen.isTrue" (get .config "enable-real-ip")) -}}
{{- $networks := list "0.0.0.0/0" "::/0" -}}
{{- with get .config "proxy-real-ip-cidr" -}}
{{- $networks = list -}}
{{- range splitList "," (toString .) -}}{{- with trim . -}}{{- $networks = append $networks . -}}{{- end -}}{{- end -}}
{{- end -}}
{{- $header := get .config "forwarded-for-header" | default "X-Forwarded-For" | lower | replace "-" "_" -}}
{{- $_ := set .node "real_ip" (dict "from" $networks "source" (printf "http_%s" $header) "recursive" true) -}}
{{- if $forwarded -}}{{- $_ := set .node "trusted_addresses" $networks -}}{{- end -}}
{{- end -}}
{{- end -}}

{{/* The section kubernetes.ingress: ports, and the flags that ingress-nginx would have. Arguments: root, result, kubernetes. */}}
{{- define "yumen.ingressSettings" -}}
{{- $ingress := .result.values.ingress -}}
{{- $service := .result.values.service -}}
{{- $namespace := include "yumen.namespace" .root -}}
{{- $name := include "yumen.fullname" .root -}}
{{- $flags := dict "configmap" (printf "%s/%s-controller" $namespace $name) -}}
{{- if ne $ingress.class.controllerValue .result.values.gateway.controllerName -}}
{{- $_ := set $flags "controller-class" $ingress.class.controllerValue -}}
{{- end -}}
{{- if .result.values.defaultBackend.enabled -}}
{{- $_ := set $flags "default-backend-service" (printf "%s/%s-default-backend" $namespace $name) -}}
{{- end -}}
{{- if and $ingress.publishService $service.enabled -}}
{{- $_ := set $flags "publish-service" (printf "%s/%s%s" $namespace $name (ternary "" "-internal" $service.external.enabled)) -}}
{{- end -}}
{{- if .root.Values.tcp -}}{{- $_ := set $flags "tcp-services-configmap" (printf "%s/%s-tcp" $namespace $name) -}}{{- end -}}
{{- if .root.Values.udp -}}{{- $_ := set $flags "udp-services-configmap" (printf "%s/%s-udp" $namespace $name) -}}{{- end -}}
{{- $flags = mergeOverwrite $flags $ingress.flags -}}
{{- $lines := list -}}
{{- range $flag, $value := $flags -}}
{{- $text := toString $value | replace "$(POD_NAMESPACE)" $namespace -}}
{{- $lines = append $lines (ternary (printf "--%s" $flag) (printf "--%s=%s" $flag $text) (eq $text "")) -}}
{{- end -}}
{{- $_ := set .kubernetes "ingress" (dict "enabled" true "take_over" $ingress.takeOver "http_port" (int .result.values.ports.http) "https_port" (int .result.values.ports.https) "flags" $lines) -}}
{{- if .result.values.metrics.ingressNginx -}}
{{- $_ := set .kubernetes.ingress "metric_names" "nginx" -}}
{{- end -}}
{{- end -}}
