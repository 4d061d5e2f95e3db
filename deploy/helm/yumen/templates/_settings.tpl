{{/* The values in force, as JSON: `values`, after those of ingress-nginx were taken over; `report`, the keys of ingress-nginx
     without a counterpart, by path; `ingress` and `mode`, which are derived; and `node`, the node file. */}}
{{- define "yumen.settings" -}}
{{- $values := .Values | toJson | fromJson -}}
{{- $result := dict "values" $values "report" (dict) "refused" (dict) "node" (dict) -}}
{{- include "yumen.adopt" (dict "root" . "result" $result) -}}
{{- include "yumen.refuse" (dict "root" . "result" $result) -}}
{{- $mode := default (ternary "merged" "service" $values.hostNetwork) $values.gateway.mode -}}
{{- $ingress := eq (toString $values.ingress.enabled) "true" -}}
{{- $_ := set $result "mode" $mode -}}
{{- $_ := set $result "ingress" $ingress -}}
{{- $class := $values.ingress.class -}}
{{- if not $class.name -}}{{- $_ := set $class "name" (ternary "nginx" "yumen" $result.adopting) -}}{{- end -}}
{{- if not $class.controllerValue -}}
{{- $_ := set $class "controllerValue" (ternary "k8s.io/ingress-nginx" $values.gateway.controllerName $result.adopting) -}}
{{- end -}}
{{- if and $result.adopting (not $ingress) -}}
{{- $_ := set $result.report "controller" "ingress.enabled is false: Ingresses are not served" -}}
{{- end -}}
{{- $ports := $values.ports -}}
{{- if not $ports.http }}{{- $_ := set $ports "http" (ternary 80 8080 $values.hostNetwork) -}}{{- end -}}
{{- if not $ports.https }}{{- $_ := set $ports "https" (ternary 443 8443 $values.hostNetwork) -}}{{- end -}}
{{- $service := toString $values.service.enabled -}}
{{- if and (eq $service "auto") $result.adopting -}}
{{- $_ := set $values.service "enabled" $ingress -}}
{{- else if eq $service "auto" -}}
{{- $_ := set $values.service "enabled" (and (or $ingress (eq $mode "merged")) (not $values.hostNetwork)) -}}
{{- end -}}
{{- include "yumen.nodeFile" (dict "root" . "result" $result) -}}
{{- $result | toJson -}}
{{- end -}}

{{/* Ends the rendering if a value is refused; one that is accepted is reported. Arguments: root, result. */}}
{{- define "yumen.refuse" -}}
{{- $lines := list -}}
{{- range $path, $reason := .result.refused -}}
{{- if has $path $.root.Values.accept -}}
{{- $_ := set $.result.report $path $reason -}}
{{- else -}}
{{- $lines = append $lines (printf "  %s: %s" $path $reason) -}}
{{- end -}}
{{- end -}}
{{- if $lines -}}
{{- fail (printf "values of ingress-nginx that have no counterpart, although traffic depends on them:\n%s\nRemove them, or list their names in the value accept to go on without." (join "\n" $lines)) -}}
{{- end -}}
{{- end -}}

{{/* Sets a member by its path; maps are merged. Arguments: into, path, value. */}}
{{- define "yumen.put" -}}
{{- $at := .into -}}
{{- $parts := splitList "." .path -}}
{{- range initial $parts -}}
{{- if not (kindIs "map" (get $at .)) -}}{{- $_ := set $at . (dict) -}}{{- end -}}
{{- $at = get $at . -}}
{{- end -}}
{{- $name := last $parts -}}
{{- if and (kindIs "map" .value) (kindIs "map" (get $at $name)) -}}
{{- $_ := mergeOverwrite (get $at $name) .value -}}
{{- else -}}
{{- $_ := set $at $name .value -}}
{{- end -}}
{{- end -}}

{{/* Milliseconds of a time as NGINX writes it: 75, 75s, 4m, 1h, 500ms. */}}
{{- define "yumen.milliseconds" -}}
{{- $text := toString . | trim -}}
{{- $number := regexFind "^[0-9]+" $text | int64 -}}
{{- if not (regexMatch "^[0-9]+(ms|s|m|h)?$" $text) -}}
{{- fail (printf "%q is no time: write seconds, or a number with ms, s, m or h" $text) -}}
{{- else if hasSuffix "ms" $text -}}{{- $number -}}
{{- else if hasSuffix "m" $text -}}{{- mul $number 60000 -}}
{{- else if hasSuffix "h" $text -}}{{- mul $number 3600000 -}}
{{- else -}}{{- mul $number 1000 -}}
{{- end -}}
{{- end -}}

{{- define "yumen.isTrue" -}}
{{- if eq (lower (toString .)) "true" -}}true{{- end -}}
{{- end -}}
