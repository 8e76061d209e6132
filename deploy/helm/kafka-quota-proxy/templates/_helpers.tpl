{{- define "kafka-quota-proxy.fullname" -}}
{{- $name := contains .Chart.Name .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name .Chart.Name) }}
{{- if not (regexMatch "^[a-z]" $name) }}
{{- fail (printf "the name of a Service begins with a letter, so the release cannot be named %s" .Release.Name) }}
{{- end }}
{{- $name | replace "." "-" | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "kafka-quota-proxy.selectorLabels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "kafka-quota-proxy.labels" -}}
{{ include "kafka-quota-proxy.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{/* The name of the ConfigMap with the proxy's file. What a proxy reads only at its start is part of the name: new pods get
     a new ConfigMap, and old ones can start again with theirs. All else changes in place, and running proxies read it. */}}
{{- define "kafka-quota-proxy.configMap" -}}
{{- $name := include "kafka-quota-proxy.fullname" . }}
{{- if eq .Values.mode "standalone" }}
{{- $start := pick .Values.config "admin" "kafka" "listeners" "log" "quotas_from" "store" "upstream_bind" "usage_log" }}
{{- $name = printf "%s-%s" $name ($start | toJson | sha256sum | trunc 10) }}
{{- end }}
{{- $name }}
{{- end }}

{{/* The proxy's file. */}}
{{- define "kafka-quota-proxy.file" -}}
{{- $config := deepCopy .Values.config }}
{{- if eq .Values.mode "standalone" }}
{{- range $config.listeners }}
{{- if and .bootstrap_servers (not .advertised_host) }}
{{- $_ := set . "advertised_host" (include "kafka-quota-proxy.host" $) }}
{{- end }}
{{- end }}
{{- end }}
{{- toYaml $config }}
{{- end }}

{{/* The host that clients of the Service connect to. */}}
{{- define "kafka-quota-proxy.host" -}}
{{ include "kafka-quota-proxy.fullname" . }}.{{ .Release.Namespace }}.svc
{{- end }}

{{/* The ports that clients connect to: of each listener its own, and those of the brokers. Each may be used once. */}}
{{- define "kafka-quota-proxy.clientPorts" -}}
{{- $users := dict }}
{{- range $key := list "bind" "metrics_bind" }}
{{- $_ := set $users (get $.Values.config.admin $key | splitList ":" | last) (printf "admin.%s" $key) }}
{{- end }}
{{- range $listener := .Values.config.listeners }}
{{- $ports := list (splitList ":" .bind | last | int) }}
{{- with .broker_ports }}
{{- $ends := splitList "-" . }}
{{- $first := first $ends | int }}
{{- $last := last $ends | int }}
{{- if or (gt $first $last) (gt $last 65535) }}
{{- fail (printf "config.listeners: broker_ports %s of %s is no range of ports" . $listener.name) }}
{{- end }}
{{- $ports = concat $ports (untilStep $first (add1 $last | int) 1) }}
{{- end }}
{{- range $port := $ports }}
{{- if or (lt . 1) (gt . 65535) }}
{{- fail (printf "config.listeners: %d of %s is no port" . $listener.name) }}
{{- end }}
{{- with get $users (toString .) }}
{{- fail (printf "config.listeners: port %d of %s is also a port of %s" $port $listener.name .) }}
{{- end }}
{{- $_ := set $users (toString .) $listener.name }}
- {{ . }}
{{- end }}
{{- end }}
{{- end }}

{{- define "kafka-quota-proxy.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{/* The container, for an entry of a pod's `containers`. */}}
{{- define "kafka-quota-proxy.sidecar.container" -}}
- name: quota-proxy
  image: {{ include "kafka-quota-proxy.image" . }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  ports:
    {{- range include "kafka-quota-proxy.clientPorts" . | fromYamlArray }}
    - {name: tcp-{{ . }}, containerPort: {{ . }}}
    {{- end }}
    - {name: metrics, containerPort: {{ splitList ":" .Values.config.admin.metrics_bind | last }}}
  {{- range $probe, $path := dict "startup" "/livez" "liveness" "/livez" "readiness" "/readyz" }}
  {{- with get $.Values.probes $probe }}
  {{ $probe }}Probe: {{- merge (dict "httpGet" (dict "path" $path "port" "metrics")) . | toYaml | nindent 4 }}
  {{- end }}
  {{- end }}
  {{- if eq .Values.mode "standalone" }}
  # Until the Service sends no new connections.
  lifecycle: {preStop: {exec: {command: [sleep, "5"]}}}
  {{- end }}
  resources: {{- toYaml .Values.resources | nindent 4 }}
  securityContext: {{- toYaml .Values.securityContext | nindent 4 }}
  volumeMounts: {{- include "kafka-quota-proxy.volumeMounts" . | nindent 4 }}
{{- end }}

{{- define "kafka-quota-proxy.volumeMounts" -}}
# The whole directory: a file mounted by subPath never changes in a running pod.
- {name: quota-proxy-config, mountPath: /etc/kafka-quota-proxy, readOnly: true}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* The volumes of that container, for entries of the pod's `volumes`. */}}
{{- define "kafka-quota-proxy.sidecar.volumes" -}}
- name: quota-proxy-config
  configMap: {name: {{ include "kafka-quota-proxy.configMap" . }}}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}
