{{- define "kafka-quota-proxy.fullname" -}}
{{- $name := contains .Chart.Name .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name .Chart.Name) }}
{{- $name | trunc 63 | trimSuffix "-" }}
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

{{/* The host that clients of the Service connect to. */}}
{{- define "kafka-quota-proxy.host" -}}
{{ include "kafka-quota-proxy.fullname" . }}.{{ .Release.Namespace }}.svc
{{- end }}

{{/* The ports that clients connect to: of each listener its own, and those of the brokers. */}}
{{- define "kafka-quota-proxy.clientPorts" -}}
{{- range .Values.config.listeners }}
- {{ splitList ":" .bind | last }}
{{- with .broker_ports }}
{{- $ends := splitList "-" . }}
{{- range untilStep (first $ends | int) (last $ends | int | add1 | int) 1 }}
- {{ . }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* The container, for an entry of a pod's `containers`. */}}
{{- define "kafka-quota-proxy.sidecar.container" -}}
- name: quota-proxy
  image: {{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  ports:
    {{- range include "kafka-quota-proxy.clientPorts" . | fromYamlArray }}
    - {name: tcp-{{ . }}, containerPort: {{ . }}}
    {{- end }}
    - {name: metrics, containerPort: {{ splitList ":" .Values.config.admin.metrics_bind | last }}}
  livenessProbe:
    httpGet: {path: /livez, port: metrics}
  readinessProbe:
    httpGet: {path: /readyz, port: metrics}
  {{- if eq .Values.mode "standalone" }}
  # Until the Service sends no new connections.
  lifecycle: {preStop: {exec: {command: [sleep, "5"]}}}
  {{- end }}
  resources: {{- toYaml .Values.resources | nindent 4 }}
  securityContext: {{- toYaml .Values.securityContext | nindent 4 }}
  volumeMounts:
    # The whole directory: a file mounted by subPath never changes in a running pod.
    - {name: quota-proxy-config, mountPath: /etc/kafka-quota-proxy, readOnly: true}
    {{- with .Values.extraVolumeMounts }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end }}

{{/* The volumes of that container, for entries of the pod's `volumes`. */}}
{{- define "kafka-quota-proxy.sidecar.volumes" -}}
- name: quota-proxy-config
  configMap: {name: {{ include "kafka-quota-proxy.fullname" . }}}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}
