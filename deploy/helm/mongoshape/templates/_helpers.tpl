{{- define "mongoshape.fullname" -}}
{{- $name := .Release.Name -}}
{{- if not (contains "mongoshape" $name) -}}
{{- $name = printf "%s-mongoshape" $name -}}
{{- end -}}
{{- .Values.fullnameOverride | default $name | trunc 63 | trimSuffix "-" -}}
{{- end }}

{{- define "mongoshape.selectorLabels" -}}
app.kubernetes.io/name: mongoshape
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- define "mongoshape.labels" -}}
{{ include "mongoshape.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- /* A variable of the environment is enough for the connection string: it need not be in the file. */ -}}
{{- define "mongoshape.checkUpstream" -}}
{{- $named := or .Values.upstream.existingSecret (regexMatch `(?m)^[^#\n]*\buri\s*=` .Values.config) -}}
{{- range .Values.extraEnv -}}
{{- $named = or $named (eq .name "MONGOSHAPE_UPSTREAM_URI") -}}
{{- end -}}
{{- if not $named -}}
{{- fail "set upstream.existingSecret, or write [upstream] uri in config" -}}
{{- end -}}
{{- end }}

{{- define "mongoshape.checksum" -}}
checksum/config: {{ sha256sum .Values.config }}
{{- end }}

{{- define "mongoshape.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- .Values.serviceAccount.name | default (include "mongoshape.fullname" .) -}}
{{- else -}}
{{- .Values.serviceAccount.name -}}
{{- end -}}
{{- end }}

{{- /* What the container has in both modes. */ -}}
{{- define "mongoshape.container" -}}
{{- $repository := required "set image.repository" .Values.image.repository -}}
name: mongoshape
{{- if .Values.image.digest }}
image: {{ printf "%s@%s" $repository .Values.image.digest | quote }}
{{- else }}
image: {{ printf "%s:%s" $repository (.Values.image.tag | default .Chart.AppVersion) | quote }}
{{- end }}
{{- with .Values.image.pullPolicy }}
imagePullPolicy: {{ . }}
{{- end }}
args: ["serve", "--config", "/etc/mongoshape/mongoshape.toml"]
{{- if or .Values.upstream.existingSecret .Values.adminTls.existingSecret .Values.extraEnv }}
env:
  {{- with .Values.upstream }}
  {{- if .existingSecret }}
  - name: MONGOSHAPE_UPSTREAM_URI
    valueFrom:
      secretKeyRef:
        name: {{ .existingSecret | quote }}
        key: {{ .key | quote }}
  {{- end }}
  {{- end }}
  {{- if .Values.adminTls.existingSecret }}
  - name: MONGOSHAPE_ADMIN_TLS_CERT
    value: /etc/mongoshape-admin-tls/tls.crt
  - name: MONGOSHAPE_ADMIN_TLS_KEY
    value: /etc/mongoshape-admin-tls/tls.key
  {{- end }}
  {{- with .Values.extraEnv }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}
startupProbe:
  {{- include "mongoshape.httpGet" (list . "/livez") | nindent 2 }}
  periodSeconds: 1
  failureThreshold: 30
livenessProbe:
  {{- include "mongoshape.httpGet" (list . "/livez") | nindent 2 }}
  periodSeconds: 10
  timeoutSeconds: 5
{{- end }}

{{- define "mongoshape.httpGet" -}}
{{- $root := index . 0 -}}
httpGet:
  path: {{ index . 1 }}
  port: metrics
  {{- if $root.Values.adminTls.existingSecret }}
  scheme: HTTPS
  {{- end }}
{{- end }}

{{- define "mongoshape.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: ["ALL"]
{{- end }}

{{- define "mongoshape.userSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
seccompProfile:
  type: RuntimeDefault
{{- end }}
